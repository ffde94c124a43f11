"""The vocabulary shared by two tokenizers."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from specdec_runtime.drafting import DraftVocabulary


def shared_vocabulary(
    target: PreTrainedTokenizerBase,
    draft: PreTrainedTokenizerBase,
    num_target: int,
    num_draft: int,
    device: torch.device,
) -> DraftVocabulary:
    """Return the vocabulary of the tokens that both tokenizers have (TLI: Timor et al., arXiv 2502.05202).

    A target token that the draft lacks is replaced by the draft tokens of its text.

    Args:
        target: the target's tokenizer.
        draft: the draft's tokenizer.
        num_target: number of the target's logits.
        num_draft: number of the draft's logits.
        device: device of the logits.

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
    return DraftVocabulary(columns, target_ids, pieces, num_target, device)


def _blank(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the first character of tokens that follow a space; empty if the tokenizer marks none."""
    ids = tokenizer(" a", add_special_tokens=False)["input_ids"]
    token = tokenizer.convert_ids_to_tokens(ids)[0] if ids else ""
    return token[0] if token and token[0] in "Ġ▁" else ""


def _spelled(
    token: str | None,
    target: PreTrainedTokenizerBase,
    draft: PreTrainedTokenizerBase,
    theirs: dict[str, int],
) -> list[int]:
    """Return the draft tokens of the text of a target token; never empty."""
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
