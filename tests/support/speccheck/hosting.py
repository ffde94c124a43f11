"""A host that knows what its target says: it verifies drafts against texts, and drives a `HostedProposer` as adapters do."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from speccheck.proposers import HiddenRecorder, Recorder
from specdec import FinishReason, SamplingParams
from specdec.interfaces import Capability
from specdec_hosting import HostedProposer

HIDDEN = 4


class ChainRecorder(Recorder):
    """A recorder that drafts chains only."""

    capabilities = frozenset()


class ChainHiddenRecorder(HiddenRecorder):
    """A recorder of hidden states that drafts chains only."""

    capabilities = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})


def state_at(position: int, kind: int) -> torch.Tensor:
    """Return the made-up state of a position: the final one, or an auxiliary one."""
    return torch.full((HIDDEN,), 1.0 + position + 1000.0 * kind)


def states_of(start: int, count: int, num_kinds: int) -> tuple[torch.Tensor, ...]:
    """Return states `[count, H]` of every kind for the rows from a position on."""
    return tuple(
        torch.stack([state_at(start + i, kind) for i in range(count)]) if count else torch.empty(0, HIDDEN)
        for kind in range(num_kinds)
    )


def drive(
    hosted: HostedProposer, texts: dict[str, list[int]], prompts: dict[str, int], *, piece: int = 1000
) -> dict[str, list[int]]:
    """Run requests to their ends as a host does; returns what it emitted.

    Args:
        hosted: the proposer.
        texts: for each request its whole text, prompt included.
        prompts: for each request the length of its prompt.
        piece: the most rows of a prompt in one pass.
    """
    emitted: dict[str, list[int]] = {name: [] for name in texts}
    computed = dict.fromkeys(texts, 0)
    drafts: dict[str, Sequence[int]] = {}
    for name, text in texts.items():
        params = SamplingParams(temperature=0.0, max_tokens=len(text) - prompts[name])
        hosted.start(name, text[: prompts[name]], params)
    while running := [name for name in texts if prompts[name] + len(emitted[name]) < len(texts[name])]:
        caps = []
        for name in running:
            text, num_tokens = texts[name], prompts[name] + len(emitted[name])
            start = computed[name]
            chunk = min(num_tokens - start, piece)
            draft = list(drafts.get(name, ())) if start + chunk == num_tokens else []
            kept = 0
            while kept < len(draft) and text[num_tokens + kept : num_tokens + kept + 1] == [draft[kept]]:
                kept += 1
            if start + chunk == num_tokens:
                news = text[num_tokens : num_tokens + kept + 1]
                hosted.commit(name, news, num_drafted=len(draft), num_accepted=kept)
                emitted[name] += news
            if hosted.needs_hidden:
                states = states_of(start, chunk + kept, 1 + len(hosted.aux_layer_ids))
                hosted.keep_states(name, start, states)
            computed[name] = start + chunk + kept
            caps.append(hosted.num_speculative_tokens if start + chunk == num_tokens else 0)
        rows = hosted.propose(running, caps).rows
        drafts = dict(zip(running, rows, strict=True))
        for name in running:
            if prompts[name] + len(emitted[name]) >= len(texts[name]):
                hosted.finish([name], FinishReason.LENGTH)
    return emitted
