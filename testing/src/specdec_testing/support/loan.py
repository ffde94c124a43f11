"""The memory that a batch lends to a proposer for one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import ProposeBatch, TokenIds

_LISTS = (
    "max_nodes", "num_tokens", "num_prompt_tokens", "starts", "counts", "last_num_drafted",
    "last_num_accepted",
)  # fmt: skip
Number = TypeVar("Number", np.int32, np.float32)
_TENSORS = ("hidden_states", "aux_hidden_states", "has_hidden", "new_token_ids")


class Loan:
    """A batch in its own memory, which can be checked for writes and overwritten afterwards.

    Args:
        batch: the batch as the engine builds it.
        texts: `[B]` all committed tokens of each row.
        is_watched: whether the contents are saved, for `written`.
    """

    def __init__(self, batch: ProposeBatch, texts: Sequence[TokenIds], *, is_watched: bool) -> None:
        self._arrays: list[npt.NDArray[Any]] = []
        views = [self._lend(text.copy()) for text in texts]
        top_k = batch.top_k
        if top_k is not None:
            top_k = replace(
                top_k,
                token_ids=self._lend(top_k.token_ids.copy()),
                top_ids=self._lend(top_k.top_ids.copy()),
                logprobs=self._lend(top_k.logprobs.copy()),
            )
        self.batch = replace(
            batch,
            new_token_ids=self._lend(batch.new_token_ids.copy()),
            token_ids_of=views.__getitem__,
            top_k=top_k,
        )
        self._before = self._content() if is_watched else None

    def written(self) -> str | None:
        """Return the name of a field that has changed, or None."""
        if self._before is None:
            return None
        after = self._content()
        for name, old in self._before.items():
            if not _equal(old, after[name]):
                return name
        return None

    def scribble(self) -> None:
        """Overwrite the batch's memory, as an engine that reuses its buffers may do."""
        for array in self._arrays:
            array.flags.writeable = True
            array[:] = (array[::-1] + 1) % (array.max(initial=1) + 1)
            array.flags.writeable = False
        for value in self._tensors().values():
            value.fill_(float("nan") if value.is_floating_point() else 0)

    def _lend(self, array: npt.NDArray[Number]) -> npt.NDArray[Number]:
        array.flags.writeable = False
        self._arrays.append(array)
        return array[:]

    def _tensors(self) -> dict[str, torch.Tensor]:
        found = {}
        for name in (*_TENSORS, *_LISTS):
            value = getattr(self.batch, name, None)
            for index, item in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(item, torch.Tensor):
                    found[f"{name}[{index}]" if isinstance(value, tuple) else name] = item
        return found

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {name: tensor.clone() for name, tensor in self._tensors().items()}
        content |= {name: list(getattr(self.batch, name)) for name in _LISTS}
        content["new_token_ids"] = self._arrays[-1].copy()
        content |= {f"token_ids({row})": array.copy() for row, array in enumerate(self._arrays[:-1])}
        return content


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor):
        return torch.equal(old, new)
    return bool(np.array_equal(old, new))
