"""Verification by the kernels of specdec-kernels, where they run and draw what torch draws."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

import torch

from specdec.interfaces.draft import PADDING_ID, Draft, DraftSampling
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.noise import Stream, exponentials, node_word
from specdec.runner.attention_backend import missing_kernels

logger = logging.getLogger("specdec")

_PROBE_ROWS, _PROBE_IDS = 6, 5003


def serves_device(device: torch.device) -> bool:
    """Return whether the kernels serve a device: a GPU, where they are installed and draw what torch draws."""
    return device.type == "cuda" and missing_kernels() is None and _agrees(device)


def walk_on_device(scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict:
    """Verify chains or trees along the tokens that the target draws, and wait for the device once.

    Args:
        scores: p-logits; temperature is in them already.
        draft: a checked draft.
        batch: facts about its rows.
    """
    from specdec.runner.triton_backend import kernels_on  # imports the optional kernels
    from specdec_kernels.strict_verify import strict_verify

    parents = None if draft.parents is None else draft.parents.to(scores.logits.device).contiguous()
    with kernels_on(scores.logits.device):
        verdict = strict_verify(*_arguments(scores, draft, batch), parents=parents)
    together = torch.cat((verdict.num_accepted[:, None], verdict.token_ids, verdict.accepted_nodes), 1)
    first = 1 + verdict.token_ids.shape[1]
    rows = together.tolist()
    return Verdict([row[first : first + row[0]] for row in rows], [row[1 : row[0] + 2] for row in rows])


def judge_on_device(operation: str, scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict | None:
    """Verify chains by a kernel that weighs p against q, and wait for the device once; None where none serves.

    Args:
        operation: `rejection_verify` or `block_verify`.
        scores: p-logits; temperature is in them already.
        draft: a checked draft.
        batch: facts about its rows.
    """
    device = scores.logits.device
    if draft.parents is not None or draft.vocab_map is not None or not serves_device(device):
        return None
    from specdec.runner.triton_backend import kernels_on  # imports the optional kernels

    judge = getattr(import_module(f"specdec_kernels.{operation}"), operation)
    probs, is_drawn = _drawn_rows(draft, batch, device)
    given = _arguments(scores, draft, batch, is_drawn)
    with kernels_on(device):
        verdict = judge(*given, draft_probs=probs, has_probs=is_drawn)
    rows = torch.cat((verdict.num_accepted[:, None], verdict.token_ids), 1).tolist()
    return Verdict([list(range(row[0])) for row in rows], [row[1 : row[0] + 2] for row in rows])


def _drawn_rows(
    draft: Draft, batch: VerifyBatch, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return q, and `[B]` the rows that were drawn from it and are sampled; None and None where no row has any."""
    if draft.node_probs is None or draft.sampling is DraftSampling.DETERMINISTIC:
        return None, None
    probs = draft.node_probs.to(device)
    is_sampled = torch.tensor([not params.is_greedy for params in batch.sampling_params]).to(device)
    is_drawn = is_sampled if draft.has_probs is None else is_sampled & draft.has_probs.to(device)
    return probs if probs.dtype is torch.float64 else probs.float(), is_drawn


def _arguments(
    scores: Scores, draft: Draft, batch: VerifyBatch, is_drawn: torch.Tensor | None = None
) -> tuple[Any, ...]:
    """Return what every kernel takes: logits, drafted ids, first rows, counts, temperatures and keys.

    Ids are those that were drawn in rows `is_drawn`, `[B]`, and those that were scored in all others.
    """
    from specdec_kernels.noise.keys import NoiseKeys  # imports the optional kernels

    device, width = scores.logits.device, draft.token_ids.shape[1]
    assert draft.host_rows is not None
    numbers = [scores.row_starts, batch.num_nodes, batch.seeds, batch.num_tokens, batch.sample_indices]
    starts, counts, *keys = torch.tensor(numbers).to(device, non_blocking=True)
    scored = [[*row, *[PADDING_ID] * (width - len(row))] for row in draft.host_rows]
    ids = torch.tensor(scored, dtype=torch.int64).reshape(len(scored), width).to(device, non_blocking=True)
    if is_drawn is not None:
        ids = torch.where(is_drawn[:, None], draft.token_ids.to(device), ids)
    temperatures = torch.tensor([0.0 if params.is_greedy else 1.0 for params in batch.sampling_params])
    temperatures = temperatures.to(device, non_blocking=True)
    return scores.logits, ids, starts, counts, temperatures, NoiseKeys(*keys)


@cache
def _agrees(device: torch.device) -> bool:
    """Try the kernels once on rows of which torch knows the tokens; warn if they fail or draw others."""
    try:
        wrong = _difference(device)
    except Exception as error:  # a compiler, a driver or a launch may raise anything
        wrong = f"they raised {type(error).__name__}: {error}"
    if wrong is not None:
        logger.warning(
            "drafts are verified through torch: the kernels of specdec-kernels fail here: %s", wrong
        )
    return wrong is None


def _difference(device: torch.device) -> str | None:
    from specdec.runner.triton_backend import kernels_on  # imports the optional kernels
    from specdec_kernels.gumbel_sample import gumbel_sample
    from specdec_kernels.noise.keys import NoiseKeys

    generator = torch.Generator().manual_seed(0)
    logits = (3.0 * torch.randn(_PROBE_ROWS, _PROBE_IDS, generator=generator)).to(device)
    keys = NoiseKeys(*(torch.arange(_PROBE_ROWS, device=device) + start for start in (11, 40, 0)))
    temperatures = torch.ones(_PROBE_ROWS, device=device)
    temperatures[0] = 0.0
    with kernels_on(device):
        drawn = gumbel_sample(logits, temperatures, keys)
    words = torch.full_like(keys.seeds, node_word(Stream.TARGET))
    noise = exponentials(keys.seeds, keys.positions, keys.samples, words, _PROBE_IDS)
    expected = (noise / torch.softmax(logits.double(), -1)).argmin(-1)
    expected[0] = logits[0].argmax()
    return None if torch.equal(drawn, expected) else "they draw other tokens"
