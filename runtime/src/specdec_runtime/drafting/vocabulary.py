"""The mapping between the ids of a draft model or head and those of the target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

Int64s = npt.NDArray[np.int64]


class DraftVocabulary:
    """The ids that both models share, and the translation of the target's text into the draft's ids.

    Args:
        columns: `[V']` the draft's ids that may be drafted, or a slice of its first ids.
        target_ids: `[V']` the target's id of each, or None if they are the same and cover the target's vocabulary.
        pieces: the draft's ids for each target id, or None if ids mean the same in both models.
        vocab_size: V, the target's vocabulary size.
        device: where logits are.
        reads_target_ids: whether the draft's input takes the target's ids, whatever ids its output has.
        num_input_ids: the draft's vocabulary size if it is below the target's and ids mean the same in both: the
            draft reads its last id in place of ids that it lacks.
    """

    def __init__(
        self,
        columns: Int64s | slice,
        target_ids: Int64s | None,
        pieces: Sequence[Sequence[int]] | None,
        vocab_size: int,
        device: torch.device,
        *,
        reads_target_ids: bool = False,
        num_input_ids: int | None = None,
    ) -> None:
        self._columns = columns if isinstance(columns, slice) else torch.from_numpy(columns).to(device)
        self._draft_ids = None if isinstance(columns, slice) else columns
        self.target_ids = None if target_ids is None else torch.from_numpy(target_ids).to(device)
        self._cpu_target_ids = target_ids
        self.vocab_size = vocab_size
        """V."""
        self.num_ids = vocab_size if target_ids is None else len(target_ids)
        """V'."""
        self._reads_target_ids = reads_target_ids
        self._num_input_ids = num_input_ids
        self.reads_every_id = pieces is None and num_input_ids is None
        """Whether the draft reads each of the target's ids as it is."""
        self._offsets: Int64s | None = None
        if pieces is not None:
            self._offsets = np.cumsum([0, *map(len, pieces)])
            self._pieces = np.array([token for piece in pieces for token in piece], np.int64)

    def to_draft(self, target_ids: npt.NDArray[np.integer]) -> Int64s:
        """Return the draft's ids `[m]` for a text `[n]` in the target's ids; m is n unless vocabularies differ."""
        if self._offsets is None:
            ids = target_ids.astype(np.int64)
            return ids if self._num_input_ids is None else np.minimum(ids, self._num_input_ids - 1)
        if not len(target_ids):
            return np.empty(0, np.int64)
        starts, ends = self._offsets[target_ids], self._offsets[target_ids + 1]
        return np.concatenate([self._pieces[a:b] for a, b in zip(starts, ends, strict=True)])

    def num_draft_ids(self, target_ids: npt.NDArray[np.integer]) -> int:
        """Return the length in draft ids of a text in the target's ids."""
        if self._offsets is None:
            return len(target_ids)
        return int((self._offsets[target_ids + 1] - self._offsets[target_ids]).sum())

    def num_within(self, target_ids: npt.NDArray[np.integer], num_draft_ids: int) -> int:
        """Return the length of the longest prefix of a target text that has at most `num_draft_ids` draft ids."""
        if self._offsets is None:
            return min(len(target_ids), num_draft_ids)
        ends = np.cumsum(self._offsets[target_ids + 1] - self._offsets[target_ids])
        return int(np.searchsorted(ends, num_draft_ids, side="right"))

    def chain_ids(self, num_logits: int) -> tuple[int, Int64s | None] | None:
        """Return how many leading logits have a target id, and these ids (None if they are the same).

        Returns None if a compiled chain does not support the mapping: the draft's ids are not its first ones, the target's
        ids are not ascending, or the draft's input does not take them.

        Args:
            num_logits: number of logits of the draft.
        """
        if not isinstance(self._columns, slice):
            return None
        if self._cpu_target_ids is None:
            return min(self.vocab_size, num_logits), None
        ids = self._cpu_target_ids
        is_same = bool((ids == np.arange(len(ids))).all())
        if is_same:
            return len(ids), None
        return (len(ids), ids) if self._reads_target_ids and bool((np.diff(ids) > 0).all()) else None

    def restrict(self, logits: torch.Tensor) -> torch.Tensor:
        """Select the logits `[R, V']` of ids that may be drafted from the draft's logits `[R, Vd]`."""
        return logits[:, self._columns]

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """Expand logits `[R, V']` to all of the target's ids, `[R, V]`; -inf for ids that the draft lacks."""
        if self.target_ids is None:
            return logits
        wide = logits.new_full((logits.shape[0], self.vocab_size), -torch.inf)
        wide[:, self.target_ids] = logits
        return wide

    def narrow(self, wide: torch.Tensor) -> torch.Tensor:
        """Select from values `[R, V]` over the target's ids those of ids that may be drafted, `[R, V']`."""
        return wide if self.target_ids is None else wide[:, self.target_ids]

    def name(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        """Convert indices into V' to the target's ids, and to ids of the draft's input."""
        if self._cpu_target_ids is None:
            return list(indices), list(indices)
        target = self._cpu_target_ids[list(indices)].tolist()
        if self._reads_target_ids:
            return target, target
        draft = list(indices) if self._draft_ids is None else self._draft_ids[list(indices)].tolist()
        return target, draft

    def index_of(self, target_ids: torch.Tensor) -> torch.Tensor:
        """Return the indices into V' of target ids that can be drafted."""
        if self.target_ids is None:
            return target_ids
        return self._index[target_ids]

    @cached_property
    def _index(self) -> torch.Tensor:
        """`[V]` index into V' of each target id."""
        assert self.target_ids is not None
        index = torch.zeros(self.vocab_size, dtype=torch.int64, device=self.target_ids.device)
        index[self.target_ids] = torch.arange(len(self.target_ids), device=self.target_ids.device)
        return index


def equal_vocabulary(num_target: int, num_draft: int, device: torch.device) -> DraftVocabulary:
    """Return the vocabulary of a draft with the target's ids; either model may have unused ids at the end.

    Args:
        num_target: number of logits of the target.
        num_draft: number of logits of the draft.
        device: where logits are.
    """
    if num_draft >= num_target:
        return DraftVocabulary(slice(num_target), None, None, num_target, device)
    ids = np.arange(num_draft)
    return DraftVocabulary(slice(num_draft), ids, None, num_target, device, num_input_ids=num_draft)


def reduced_vocabulary(target_ids: Int64s, num_target: int, device: torch.device) -> DraftVocabulary:
    """Return the vocabulary of a head that reads all of the target's ids but has logits for only some of them.

    Args:
        target_ids: `[V']` the target's id of each logit, all different.
        num_target: number of logits of the target.
        device: where logits are.
    """
    return DraftVocabulary(
        slice(len(target_ids)), target_ids, None, num_target, device, reads_target_ids=True
    )
