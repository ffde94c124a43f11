"""The proposer: loads the head; `HeadProposer` does the rest."""

from __future__ import annotations

from typing import ClassVar

from transformers import LlamaConfig

from specdec import ModelError, Proposer, hookimpl
from specdec.interfaces import TargetHandle
from specdec_glance.head import GlanceHead
from specdec_runtime.drafting import HeadCheckpoint, HeadConfig, HeadProposer


class GlanceConfig(HeadConfig):
    """The keys of heads; `model` is the directory that `train` wrote."""

    checkpoint: ClassVar[str | None] = "the head"


class Glance(HeadProposer):
    """Drafts chains and trees, greedily, coupled or with exact q, as the keys say."""

    name = "glance"
    api_version = 1
    Config = GlanceConfig

    def load_head(self, target: TargetHandle) -> GlanceHead:
        """Return the head with the weights of `model`.

        Raises:
            ModelError: for a target of another family, or of another size than the one it was trained for.
        """
        assert self.config.model is not None  # `GlanceConfig.checkpoint` asks for it
        if not isinstance(target.config, LlamaConfig):
            raise ModelError(f"glance is for Llama targets, not for {target.config.model_type}")
        files = HeadCheckpoint(self.config.model, self.config.revision)
        size = files.config.get("hidden_size")
        if size != target.info.hidden_size:
            raise ModelError(
                f"{files}: the head is for states of size {size}, and the target's have {target.info.hidden_size}"
            )
        head = GlanceHead(target.config, target.embed_tokens, target.lm_head)
        for name, weight in head.own_weights().items():
            weight.copy_(files.read(name, weight.shape))
        return head.to(target.info.device, target.info.dtype).eval()


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `glance`."""
    return Glance
