"""Log-likelihood of text under a head that is told the tokens before (teacher forcing)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_runtime.interfaces.forward import PackedBatch, Segment
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.runner import ModuleRunner


@torch.inference_mode()
def chain_likelihoods(
    runner: ModuleRunner, features: torch.Tensor, tokens: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-likelihood of every token that a head can draft, as first and as second token of a draft.

    Args:
        runner: the head's; with a cache of twice the text's length.
        features: `[n, F]` what the head makes of the target's states.
        tokens: the text, `[n]`.

    Returns:
        float64 `[a]` and `[b]`, always of the same tokens for one text and vocabulary.
    """
    head = runner.module
    assert isinstance(head, DraftHead)
    ids = torch.tensor(tokens, device=runner.device)
    count = len(tokens) - 1
    positions = torch.arange(count, device=runner.device)
    # Row j has token j + 1 and the state at j, and predicts token j + 2.
    segment = Segment(row=0, num_rows=count, first_slot=0, num_cached=0)
    first = runner.forward(PackedBatch(ids[1:], positions, [segment], None, None), features[:-1])
    assert first.hidden_states is not None
    more = count - 2
    carries = first.hidden_states[:more]
    if head.num_stages > 1:  # the next stage has rows of its own
        segment = Segment(row=0, num_rows=more, first_slot=0, num_cached=0)
        batch = PackedBatch(ids[2 : 2 + more], positions[:more], [segment], None, None)
        second = runner.forward(batch, carries, 1)
    else:
        # Row j has token j + 2 and the head's own state, beside rows of the text up to j.
        own = torch.eye(more, dtype=torch.bool)
        before = torch.ones(more, count, dtype=torch.bool).tril()
        segment = Segment(
            row=0, num_rows=more, first_slot=0, num_cached=count, tree_mask=torch.cat((before, own), 1),
            depths=torch.arange(1, more + 1), num_branched=count,
        )  # fmt: skip
        batch = PackedBatch(ids[2 : 2 + more], positions[:more] + 1, [segment], None, None)
        second = runner.forward(batch, carries)
    return (
        log_likelihoods(first.logits[:-1], ids[2:], head.target_ids),
        log_likelihoods(second.logits, ids[3:], head.target_ids),
    )


def log_likelihoods(logits: torch.Tensor, ids: torch.Tensor, target_ids: torch.Tensor | None) -> torch.Tensor:
    """Return the log-likelihood of the ids that have a logit.

    Args:
        logits: `[n, V']`.
        ids: `[n]` the tokens that follow, as ids of the target.
        target_ids: `[V']` the target's id of each logit; None if they are the same.

    Returns:
        float64 `[m]` on the CPU.
    """
    logs = logits.double().log_softmax(-1)
    if target_ids is not None:
        places = torch.full((int(max(target_ids.max(), ids.max())) + 1,), -1, device=ids.device)
        places[target_ids] = torch.arange(len(target_ids), device=ids.device)
        ids = places[ids]
    known = (ids >= 0) & (ids < logs.shape[1])
    return logs[known].gather(1, ids[known, None])[:, 0].cpu()
