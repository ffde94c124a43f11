"""Proposers on a small random target, whose every logit is held against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from eagle_check.session import Session
from eagle_check.targets import check, target_model
from torch import Tensor, nn

from dflash_check.reference import Reference
from dflash_check.shape import Shape
from specdec.interfaces import TargetHandle
from specdec.runner import ModuleRunner
from specdec_plugin_dflash import DFlashConfig, DFlashProposer


class BlockSession(Session):
    """Requests that draft blocks; see `Session`. Depths of a row all come of the block of its longest path."""

    def expected(self, name: str, path: Sequence[int]) -> Tensor:
        """Return the reference's logits `[V']` after a drafted path."""
        text, row = self.text(name), self.rows[name]
        states = check().states(text, tuple(self._proposer.aux_layer_ids))[1:]
        logits: Tensor = self._reference.guesses(text, states, max(row.depths))[len(path)]  # type: ignore[attr-defined]  # of this package
        return logits


def make_reference(shape: Shape, tensors: dict[str, Tensor]) -> Reference:
    """Return the reference of a head on this target."""
    model = target_model()
    embedding, lm_head = model.get_input_embeddings(), model.get_output_embeddings()
    return Reference(shape, tensors, embedding.weight.detach(), lm_head.weight.detach())


def make_proposer(folder: str, *, is_eager: bool = False, **keys: Any) -> DFlashProposer:
    """Return a loaded proposer whose cache is poisoned where nothing has been written."""
    handle = check().handle
    runners: list[ModuleRunner] = []
    handle = replace(handle, runner_factory=partial(_runner, handle, runners, is_eager))
    config = DFlashConfig(**{"num_speculative_tokens": 4, **keys, "model": folder})
    proposer = DFlashProposer(config, handle.info)
    proposer.load(handle)
    assert (len(runners[0].forms[0]) == 1) == is_eager
    for tensors in (runners[0].cache.keys, runners[0].cache.values):
        for tensor in tensors.values():
            tensor.fill_(float("nan"))
    return proposer


def _runner(handle: TargetHandle, made: list[ModuleRunner], is_eager: bool, model: nn.Module) -> ModuleRunner:
    info = handle.info
    runner = ModuleRunner(model, info.device, info.max_model_len, is_fused=not is_eager, is_draft=True)
    runner.allocate(1024)
    made.append(runner)
    return runner
