"""`mtp`: the target's own multi-token-prediction layers draft."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from specdec import ModelError
from specdec.interfaces import Capability, Proposer, ProposerConfig, TargetHandle, TargetInfo
from specdec_plugin_mtp.assistant.loading import is_assistant
from specdec_plugin_mtp.assistant.proposer import AssistantProposer
from specdec_plugin_mtp.config import MtpConfig
from specdec_plugin_mtp.head import MtpHead
from specdec_plugin_mtp.loading import load_mtp
from specdec_plugin_mtp.readings import readings_of
from specdec_plugin_mtp.tensors import MtpTensors
from specdec_runtime.drafting import HeadCheckpoint, HeadProposer
from specdec_runtime.drafting.checking import HeadReadings

logger = logging.getLogger("specdec")


class MtpProposer(HeadProposer):
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437), with the layers of the target's checkpoint."""

    name: ClassVar[str] = "mtp"
    Config: ClassVar[type[ProposerConfig]] = MtpConfig
    Readings: ClassVar[Callable[[HeadCheckpoint, TargetHandle], HeadReadings]] = staticmethod(readings_of)

    @classmethod
    def fitting(cls, config: ProposerConfig, target: TargetInfo) -> Proposer:
        """Make the proposer of layers, or that of an assistant if `model` is one."""
        assert isinstance(config, MtpConfig)
        made = AssistantProposer if is_assistant(config.model, config.revision) else cls
        return made(config, target)

    def load_head(self, target: TargetHandle) -> MtpHead:
        """Return the head; see `load_mtp`."""
        config = self._config
        if config.model is not None and not _is_target(config.model, target):
            own = HeadCheckpoint(config.model, config.revision)
            head = load_mtp(target, MtpTensors(own, str(own)), own.config)
        else:
            head = load_mtp(target, _tensors(target))
        if head.layout.reads_unnormed:
            self.aux_layer_ids = (target.info.num_layers,)
            self.capabilities = self.capabilities | {Capability.AUX_HIDDEN_STATES}
        depth = config.num_speculative_tokens
        if not config.is_tree and depth > head.num_stages:
            logger.warning(
                "mtp: num_speculative_tokens=%d with %d multi-token-prediction layer%s: they run again on their own output, "
                "which lowers acceptance of the later tokens",
                depth,
                head.num_stages,
                "" if head.num_stages == 1 else "s",
            )
        return head


def _is_target(path: str, target: TargetHandle) -> bool:
    """Return whether a path is the target's, which is the same as giving no path."""
    if target.path is None:
        return False
    ours, theirs = Path(path), Path(target.path)
    return path == target.path or (ours.is_dir() and theirs.is_dir() and ours.samefile(theirs))


def _tensors(target: TargetHandle) -> MtpTensors:
    """Return the target's own checkpoint."""
    if target.checkpoint is not None:
        return MtpTensors(target.checkpoint, str(target.path))
    if target.path is not None:
        own = HeadCheckpoint(target.path, target.revision)
        return MtpTensors(own, str(own))
    raise ModelError(
        "mtp: the target was passed as an object, and transformers drops multi-token-prediction layers when it loads a model: "
        "pass its directory, or give 'model', a directory that has the layers"
    )
