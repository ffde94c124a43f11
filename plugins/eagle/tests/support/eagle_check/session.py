"""Holds every logit that EAGLE heads draft from against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from head_check.session import Session

from eagle_check.reference import Reference
from specdec_runtime.drafting import HeadProposer


class EagleSession(Session):
    """Requests that draft from an EAGLE head; see `Session`.

    Args:
        proposer: a loaded one.
        reference: of the same head.
        is_parallel: whether all tokens are guessed at once.
    """

    def __init__(self, proposer: HeadProposer, reference: Reference, *, is_parallel: bool = False) -> None:
        super().__init__(proposer)
        self._reference, self._is_parallel = reference, is_parallel

    def expected(self, name: str, path: Sequence[int]) -> torch.Tensor:
        """Return the reference's logits `[V']` after a drafted path."""
        text = self.text(name)
        if self._is_parallel:
            return self._reference.at_once(text, self.states(text), len(path) + 1)[-1]
        return self._reference.after(text, self.states(text), path)


def config_of(kind: str) -> dict[str, Any]:
    """Return the keys of a way of drafting."""
    return {
        "chain": {"draft_sample_method": "probabilistic"},
        "dynamic tree": {"num_speculative_tokens": 9, "tree_top_k": 3, "tree_depth": 4},
        "drawn tree": {
            "num_speculative_tokens": 6,
            "draft_sample_method": "probabilistic",
            "tree_choices": [[0], [1], [2], [0, 0], [1, 0], [0, 0, 0]],
        },
    }[kind]
