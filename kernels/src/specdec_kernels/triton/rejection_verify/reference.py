"""Rejection sampling along chains in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec.noise import Stream, exponentials, node_word, uniforms
from specdec_kernels.triton.gumbel_sample.reference import best_ids, heated_logits
from specdec_kernels.triton.noise.keys import NoiseKeys, counter_words
from specdec_kernels.triton.results import PADDING_ID, ChainVerdict


def rejection_verify_reference(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor | None,
    has_probs: torch.Tensor | None,
    draft_ids: torch.Tensor | None,
) -> ChainVerdict:
    """Return the verdict; see `rejection_verify`."""
    width = draft_token_ids.shape[1]
    p, is_sound = chain_target(logits, row_starts, num_nodes, temperatures, width)
    q = chain_draft(
        draft_token_ids, num_nodes, temperatures, draft_probs, has_probs, draft_ids, logits.shape[1]
    )
    thresholds = chain_ratios(p, q, draft_token_ids, num_nodes).clamp_max(1.0)
    stands = accept_uniforms(keys, width) < thresholds
    num_accepted = stands.long().cumprod(1).sum(1)
    weights = torch.ones_like(num_accepted, dtype=torch.float64)
    tokens = emitted(p, q, draft_token_ids, num_accepted, weights, keys)
    return ChainVerdict(num_accepted, tokens, first_unsound(is_sound, num_accepted))


def chain_target(
    logits: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return p `[B, K + 1, V]` float64, the target's distribution at every position, and `[B, K + 1]` where its row is sound.

    At temperature 0 it is one-hot at the best id, else uniform where a row is not.
    """
    places = torch.arange(width + 1, device=logits.device)
    rows = torch.where(places <= num_nodes[:, None], row_starts[:, None] + places, 0)
    laws = logits[rows.flatten()]
    by_row = temperatures.repeat_interleave(width + 1)
    is_sound = laws.amax(1) > -torch.inf
    probs = torch.softmax(heated_logits(laws.masked_fill(~is_sound[:, None], 0.0), by_row), -1)
    on_best = torch.nn.functional.one_hot(best_ids(laws), logits.shape[1]).double()
    p = torch.where(by_row[:, None] > 0, probs, on_best)
    return p.reshape(len(rows), width + 1, -1), is_sound.reshape(rows.shape)


def first_unsound(is_sound: torch.Tensor, num_accepted: torch.Tensor) -> torch.Tensor:
    """Return `[B]` the first of the rows up to the last accepted node's that is not sound, or -1."""
    places = torch.arange(is_sound.shape[1], device=is_sound.device)
    first = torch.where(is_sound, is_sound.shape[1], places).amin(1)
    return torch.where(first <= num_accepted, first, -1)


def chain_draft(
    draft_token_ids: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    draft_probs: torch.Tensor | None,
    has_probs: torch.Tensor | None,
    draft_ids: torch.Tensor | None,
    vocab_size: int,
) -> torch.Tensor:
    """Return q `[B, K + 1, V + 1]` float64: the distribution of the token drafted at every position, else zeros.

    It is a point mass without q and for greedy requests. The last column stands for all ids outside the vocabulary.
    """
    width = draft_token_ids.shape[1]
    is_inside = (draft_token_ids >= 0) & (draft_token_ids < vocab_size)
    columns = torch.where(is_inside, draft_token_ids, vocab_size).long()
    q = torch.nn.functional.one_hot(columns, vocab_size + 1).double()
    if draft_probs is not None:
        if draft_ids is not None:
            known = draft_probs[:, :, draft_ids.clamp_min(0)]
            draft_probs = torch.where(draft_ids >= 0, known, 0.0)
        shared = min(draft_probs.shape[2], vocab_size)
        drawn = torch.zeros_like(q)
        drawn[:, :, :shared] = draft_probs[:, :width, :shared].double()
        is_drawn = temperatures > 0
        if has_probs is not None:
            is_drawn = is_drawn & has_probs
        q = torch.where(is_drawn[:, None, None], drawn, q)
    q = torch.nn.functional.pad(q, (0, 0, 0, 1))
    places = torch.arange(width + 1, device=q.device)
    return torch.where((places < num_nodes[:, None])[:, :, None], q, 0.0)


def chain_ratios(
    p: torch.Tensor, q: torch.Tensor, draft_token_ids: torch.Tensor, num_nodes: torch.Tensor
) -> torch.Tensor:
    """Return `[B, K]`: p / q of every drafted id; 0 if p or q is 0, and for padding."""
    width, vocab_size = draft_token_ids.shape[1], p.shape[2]
    is_inside = (draft_token_ids >= 0) & (draft_token_ids < vocab_size)
    columns = torch.where(is_inside, draft_token_ids, 0).long()[:, :, None]
    at_p, at_q = (law[:, :width].gather(2, columns)[:, :, 0] for law in (p, q))
    return torch.where(is_inside & (at_q > 0), at_p / at_q, 0.0)


def accept_uniforms(keys: NoiseKeys, width: int) -> torch.Tensor:
    """Return the uniform `[B, K]` for the acceptance of each node: id 0 of the node's word."""
    size, nodes = len(keys.seeds), torch.arange(width, device=keys.seeds.device)
    words = node_word(Stream.ACCEPT) + nodes * (node_word(Stream.ACCEPT, 1) - Stream.ACCEPT)
    repeated = NoiseKeys(*(key.repeat_interleave(width) for key in keys))
    return uniforms(*counter_words(repeated, words.repeat(size)), 1).reshape(size, width)


def emitted(
    p: torch.Tensor,
    q: torch.Tensor,
    draft_token_ids: torch.Tensor,
    num_accepted: torch.Tensor,
    weights: torch.Tensor,
    keys: NoiseKeys,
) -> torch.Tensor:
    """Return `token_ids [B, K + 1]`: the accepted tokens, then a token drawn from `max(weight * p - q, 0)`.

    If no mass is left, because p = q and rounding rejected, it is drawn from p.
    """
    width = draft_token_ids.shape[1]
    drawn = residual_scores(p, q, num_accepted, weights, keys)
    ids = torch.arange(p.shape[2], device=p.device)
    is_best = drawn == drawn.amin(1, keepdim=True)
    token = torch.where(is_best, ids, p.shape[2]).amin(1)
    places = torch.arange(width + 1, device=p.device)
    padded = torch.nn.functional.pad(draft_token_ids.long(), (0, 1))
    tokens = torch.where(places < num_accepted[:, None], padded, PADDING_ID)
    return torch.where(places == num_accepted[:, None], token[:, None], tokens)


def residual_scores(
    p: torch.Tensor, q: torch.Tensor, num_accepted: torch.Tensor, weights: torch.Tensor, keys: NoiseKeys
) -> torch.Tensor:
    """Return `[B, V]` whose minimum is the drawn id: exponentials divided by the residual of p."""
    batch = torch.arange(len(p), device=p.device)
    target = p[batch, num_accepted]
    rest = (target * weights[:, None] - q[batch, num_accepted, :-1]).clamp_min(0.0)
    rest = torch.where(rest.sum(1, keepdim=True) > 0, rest, target)
    words = node_word(Stream.RESIDUAL) + num_accepted * (node_word(Stream.RESIDUAL, 1) - Stream.RESIDUAL)
    drawn = exponentials(*counter_words(keys, words), p.shape[2])
    return torch.where(rest > 0, drawn / rest.clamp_min(1e-300), torch.inf)
