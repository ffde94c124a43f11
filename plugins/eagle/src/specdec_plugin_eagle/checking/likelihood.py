"""Log-likelihood of text under a head that is told the tokens before (teacher forcing)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec.interfaces import DraftHead, PackedBatch, Segment
from specdec.runner import ModuleRunner


@dataclass(frozen=True)
class TargetStates:
    """The target's states at every position of a text, each `[n, H]`."""

    tokens: list[int]
    final: torch.Tensor
    inputs: tuple[torch.Tensor, ...]
    """Input of each layer; the last one is the output of the last layer."""


@torch.inference_mode()
def target_states(runner: ModuleRunner, texts: Sequence[list[int]], num_layers: int) -> list[TargetStates]:
    """Run the target over texts, each in one pass from its beginning.

    Args:
        runner: the target's; its cache is replaced.
        texts: the texts.
        num_layers: number of its layers.
    """
    runner.capture_hidden(range(num_layers + 1))
    runner.allocate(max(map(len, texts)))
    found = []
    for tokens in texts:
        ids = torch.tensor(tokens, device=runner.device)
        segments = [Segment(row=0, num_rows=len(tokens), first_slot=0, num_cached=0)]
        positions = torch.arange(len(tokens), device=runner.device)
        last = positions[-1:]
        output = runner.forward(PackedBatch(ids, positions, segments, slots=None, logits_rows=last))
        assert output.hidden_states is not None
        found.append(
            TargetStates(
                tokens, output.hidden_states.clone(), tuple(a.clone() for a in output.aux_hidden_states)
            )
        )
    return found


@torch.inference_mode()
def log_likelihoods(
    runner: ModuleRunner, features: torch.Tensor, tokens: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-likelihood of every token that the head can draft, as first and as second token of a draft.

    Args:
        runner: the head's; with a cache of twice the text's length.
        features: `[n, F]` what the head makes of the target's states.
        tokens: the text, `[n]`.

    Returns:
        float64 `[a]` and `[b]`, always of the same tokens for one text and vocabulary.
    """
    ids = torch.tensor(tokens, device=runner.device)
    count = len(tokens) - 1
    positions = torch.arange(count, device=runner.device)
    # Row j has token j + 1 and the state at j, and predicts token j + 2.
    segment = Segment(row=0, num_rows=count, first_slot=0, num_cached=0)
    first = runner.forward(PackedBatch(ids[1:], positions, [segment], None, None), features[:-1])
    assert first.hidden_states is not None
    # For the second token of a draft, row j has token j + 2 and the head's own state, beside rows of the text up to j.
    more = count - 2
    own = torch.eye(more, dtype=torch.bool, device=runner.device)
    before = torch.ones(more, count, dtype=torch.bool, device=runner.device).tril()
    segment = Segment(
        row=0, num_rows=more, first_slot=0, num_cached=count, tree_mask=torch.cat((before, own), 1),
        depths=positions[:more] + 1, num_branched=count,
    )  # fmt: skip
    batch = PackedBatch(ids[2 : 2 + more], positions[:more] + 1, [segment], None, None)
    second = runner.forward(batch, first.hidden_states[:more])
    head = runner.module
    assert isinstance(head, DraftHead)
    return _chosen(head, first.logits[:-1], ids[2:]), _chosen(head, second.logits, ids[3:])


def _chosen(head: DraftHead, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the log-likelihood of the ids that the head can draft."""
    logs = logits.double().log_softmax(-1)
    if head.target_ids is not None:
        places = torch.full((int(max(head.target_ids.max(), ids.max())) + 1,), -1, device=ids.device)
        places[head.target_ids] = torch.arange(len(head.target_ids), device=ids.device)
        ids = places[ids]
    known = (ids >= 0) & (ids < logs.shape[1])
    return logs[known].gather(1, ids[known, None])[:, 0].cpu()
