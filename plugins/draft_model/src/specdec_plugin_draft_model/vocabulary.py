"""Between the target's ids and the draft's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedTokenizerBase

Int64s = npt.NDArray[np.int64]


class Vocabulary:
    """The ids that both models have, and how a text of the target reads in the draft's ids.

    Args:
        columns: `[V']` the draft's ids that may be drafted, or a slice of its first ids.
        target_ids: `[V']` the target's id of each, or None where they are the same and all of them.
        pieces: the draft's ids of each of the target's ids, or None where every id means the same to both.
        vocab_size: V, of the target.
        device: where logits are.
    """

    def __init__(
        self,
        columns: Int64s | slice,
        target_ids: Int64s | None,
        pieces: Sequence[Sequence[int]] | None,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self._columns = columns if isinstance(columns, slice) else torch.from_numpy(columns).to(device)
        self._draft_ids = None if isinstance(columns, slice) else columns
        self.target_ids = None if target_ids is None else torch.from_numpy(target_ids).to(device)
        self._host_target_ids = target_ids
        self._vocab_size = vocab_size
        self._offsets: Int64s | None = None
        if pieces is not None:
            self._offsets = np.cumsum([0, *map(len, pieces)])
            self._pieces = np.array([token for piece in pieces for token in piece], np.int64)

    def to_draft(self, target_ids: npt.NDArray[np.integer]) -> Int64s:
        """Return the draft's ids `[m]` of a text `[n]` of the target's; m is n unless vocabularies differ."""
        if self._offsets is None:
            return target_ids.astype(np.int64)
        if not len(target_ids):
            return np.empty(0, np.int64)
        starts, ends = self._offsets[target_ids], self._offsets[target_ids + 1]
        return np.concatenate([self._pieces[a:b] for a, b in zip(starts, ends, strict=True)])

    def num_draft_ids(self, target_ids: npt.NDArray[np.integer]) -> int:
        """Return how many of the draft's ids a text of the target has."""
        if self._offsets is None:
            return len(target_ids)
        return int((self._offsets[target_ids + 1] - self._offsets[target_ids]).sum())

    def restrict(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits `[R, V']` of ids that may be drafted, of the draft's logits `[R, Vd]`."""
        return logits[:, self._columns]

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits `[R, V']` over all of the target's ids, `[R, V]`; -inf where the draft has none."""
        if self.target_ids is None:
            return logits
        wide = logits.new_full((logits.shape[0], self._vocab_size), -torch.inf)
        wide[:, self.target_ids] = logits
        return wide

    def name(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the target's and the draft's ids of indices into V'."""
        if self._host_target_ids is None:
            return list(indices), list(indices)
        target = self._host_target_ids[list(indices)].tolist()
        draft = list(indices) if self._draft_ids is None else self._draft_ids[list(indices)].tolist()
        return target, draft

    def index_of(self, target_ids: torch.Tensor) -> torch.Tensor:
        """Return the indices into V' of target ids that can be drafted."""
        if self.target_ids is None:
            return target_ids
        places = torch.zeros(self._vocab_size, dtype=torch.int64, device=target_ids.device)
        places[self.target_ids] = torch.arange(len(self.target_ids), device=target_ids.device)
        return places[target_ids]


def equal_vocabulary(num_target: int, num_draft: int, device: torch.device) -> Vocabulary:
    """Return the vocabulary of a draft whose ids mean what the target's do; either may have unused ids at its end.

    Args:
        num_target: logits of the target.
        num_draft: logits of the draft.
        device: where logits are.
    """
    if num_draft >= num_target:
        return Vocabulary(slice(num_target), None, None, num_target, device)
    ids = np.arange(num_draft)
    return Vocabulary(slice(num_draft), ids, None, num_target, device)


def shared_vocabulary(
    target: PreTrainedTokenizerBase,
    draft: PreTrainedTokenizerBase,
    num_target: int,
    num_draft: int,
    device: torch.device,
) -> Vocabulary:
    """Return the vocabulary of the tokens that both tokenizers have (TLI: Timor et al., arXiv 2502.05202).

    A token of the target that the draft does not have reads as what the draft's tokenizer makes of its text.

    Args:
        target: the target's tokenizer.
        draft: the draft's.
        num_target: logits of the target.
        num_draft: logits of the draft.
        device: where logits are.

    Raises:
        ValueError: if they share no token.
    """
    blank, other_blank = _blank(target), _blank(draft)
    theirs = {
        token.replace(other_blank, blank) if other_blank and blank else token: index
        for token, index in draft.get_vocab().items()
        if index < num_draft
    }
    names = {index: token for token, index in target.get_vocab().items() if index < num_target}
    both = {index: theirs[token] for index, token in names.items() if token in theirs}
    for special in ("eos_token_id", "bos_token_id"):
        ours, other = getattr(target, special), getattr(draft, special)
        if (
            isinstance(ours, int)
            and isinstance(other, int)
            and ours not in both
            and other not in both.values()
        ):
            both[ours] = other
    if not both:
        raise ValueError("the two tokenizers have no token in common")
    pieces = [
        [both[index]] if index in both else _spelled(names.get(index), target, draft, theirs)
        for index in range(num_target)
    ]
    target_ids = np.array(sorted(both), np.int64)
    columns = np.array([both[index] for index in target_ids.tolist()], np.int64)
    return Vocabulary(columns, target_ids, pieces, num_target, device)


def _blank(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the character by which a tokenizer's tokens begin that follow a blank; empty if it has none."""
    ids = tokenizer(" a", add_special_tokens=False)["input_ids"]
    token = tokenizer.convert_ids_to_tokens(ids)[0] if ids else ""
    return token[0] if token and token[0] in "Ġ▁" else ""


def _spelled(
    token: str | None,
    target: PreTrainedTokenizerBase,
    draft: PreTrainedTokenizerBase,
    theirs: dict[str, int],
) -> list[int]:
    """Return what the draft's tokenizer makes of the text of one of the target's tokens; never nothing."""
    if token is not None:
        text = target.convert_tokens_to_string([token])
        if text and "\ufffd" not in text:
            ids = draft(text, add_special_tokens=False)["input_ids"]
            if ids:
                return [int(i) for i in ids]
        spelled = [theirs[character] for character in token if character in theirs]
        if spelled:
            return spelled
    for special in (draft.unk_token_id, draft.eos_token_id, draft.bos_token_id):
        if isinstance(special, int):
            return [special]
    return [0]
