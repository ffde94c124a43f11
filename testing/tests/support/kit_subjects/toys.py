"""Proposers that keep every promise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch

from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)

NUM_LAW_NODES = 3
"""The most nodes that `Drawn` drafts."""


class Chain(Proposer):
    """Keeps the tokens of every request and drafts what followed the newest one when it last occurred."""

    name: ClassVar[str] = "chain"

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.held: dict[str, list[int]] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        self.take_in(batch)
        return self.drafted(batch, batch.max_nodes)

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        """Return a draft of at most `caps` nodes for each row."""
        rows = [self.guess(self.held[name], cap) for name, cap in zip(batch.request_ids, caps, strict=True)]
        return Draft.from_lists(rows)

    def take_in(self, batch: ProposeBatch) -> None:
        """Take in what is new."""
        at = 0
        for row, name in enumerate(batch.request_ids):
            held = self.held.setdefault(name, [])
            del held[batch.starts[row] :]
            held += batch.new_token_ids[at : at + batch.counts[row]].tolist()
            at += batch.counts[row]

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens."""
        start = next((i + 1 for i in range(len(text) - 2, -1, -1) if text[i] == text[-1]), len(text))
        return list(text[start : start + count])

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            self.held.pop(name, None)


class Tree(Chain):
    """Drafts what followed the newest token at its last two occurrences, as two branches."""

    name: ClassVar[str] = "tree"
    capabilities = frozenset({Capability.TREE})

    def propose(self, batch: ProposeBatch) -> Draft:
        self.take_in(batch)
        rows, links, confidence = [], [], []
        for row, name in enumerate(batch.request_ids):
            ids, parents = self.branches(self.held[name], batch.max_nodes[row])
            rows.append(ids)
            links.append(parents)
            confidence.append([1 / (2 + node) for node in range(len(ids))])
        return Draft.from_lists(rows, links, confidence=confidence)

    def branches(self, text: Sequence[int], max_nodes: int) -> tuple[list[int], list[int]]:
        """Return the nodes of a tree and their parents."""
        starts = [i + 1 for i in range(len(text) - 2, -1, -1) if text[i] == text[-1]][:2]
        ids: list[int] = []
        parents: list[int] = []
        for start in starts:
            parent = -1
            for token in text[start : start + max_nodes]:
                known = [i for i in range(len(ids)) if parents[i] == parent and ids[i] == token]
                if not known and len(ids) == max_nodes:
                    break
                if not known:
                    ids.append(token)
                    parents.append(parent)
                parent = known[0] if known else len(ids) - 1
        return ids, parents


class Learner(Chain):
    """Learns what follows what from requests that ended well, and drafts that where their own text has nothing."""

    name: ClassVar[str] = "learner"

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.successors: dict[int, int] = {}

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        found = super().guess(text, count)
        return found + self.recalled([*text, *found], count - len(found))

    def recalled(self, text: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that followed each other in finished requests."""
        found = list(text[-1:])
        while found and len(found) <= count and found[-1] in self.successors:
            found.append(self.successors[found[-1]])
        return found[1:]

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            text = self.held.pop(name, [])
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                self.successors.update(pairwise(text))


class Recaller(Learner):
    """Drafts from requests that ended well alone."""

    name: ClassVar[str] = "recaller"

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return self.recalled(text, count)


class Drawn(Chain):
    """Draws from a distribution that depends on the token before, and reports it."""

    name: ClassVar[str] = "drawn"
    capabilities = frozenset({Capability.DRAFT_PROBS})
    sampling: ClassVar[DraftSampling] = DraftSampling.IID

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        generator = torch.Generator().manual_seed(5)
        self.logits = 2.5 * torch.randn(target.vocab_size, target.vocab_size, generator=generator)

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        caps = [min(cap, NUM_LAW_NODES) for cap in caps]
        width, size = max(caps, default=0), self.target_info.vocab_size
        ids = torch.full((batch.batch_size, width), -1, dtype=torch.int64)
        probs = torch.full((batch.batch_size, width + 1, size), 1 / size)
        last = torch.tensor([self.held[name][-1] if self.held[name] else 0 for name in batch.request_ids])
        for node in range(width):
            rows = [row for row, cap in enumerate(caps) if cap > node]
            tokens, law = self.draw(batch, last[rows], rows, node)
            ids[rows, node] = tokens
            probs[rows, node] = law
            last[rows] = tokens
        return Draft(ids, sampling=self.sampling, node_probs=probs)

    def draw(
        self, batch: ProposeBatch, last: torch.Tensor, rows: list[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and the distributions they were drawn from."""
        return batch.draws.sample(self.logits[last], rows, node)


class Siblings(Drawn):
    """Draws two children of the newest token, the second with the first taken out, and a child of the first."""

    name: ClassVar[str] = "siblings"
    capabilities = frozenset({Capability.DRAFT_PROBS, Capability.TREE})
    sampling = DraftSampling.WITHOUT_REPLACEMENT

    def propose(self, batch: ProposeBatch) -> Draft:
        self.take_in(batch)
        caps = [min(most, 3) for most in batch.max_nodes]
        width, size = max(caps, default=0), self.target_info.vocab_size
        ids = torch.full((batch.batch_size, width), -1, dtype=torch.int64)
        probs = torch.full((batch.batch_size, width + 1, size), 1 / size)
        parents = torch.tensor([[-1, -1, 0]])[:, :width].repeat(batch.batch_size, 1)
        last = torch.tensor([self.held[name][-1] if self.held[name] else 0 for name in batch.request_ids])
        for node in range(width):
            rows = [row for row, cap in enumerate(caps) if cap > node]
            logits = self.logits[last[rows] if node < 2 else ids[rows, 0]].clone()
            law = torch.softmax(logits, -1)
            if node == 1:
                logits.scatter_(1, ids[rows, :1], -torch.inf)
            ids[rows, node] = batch.draws.sample(logits, rows, node)[0]
            probs[rows, 0 if node < 2 else 1] = law
        return Draft(ids, parents, self.sampling, node_probs=probs)


class Head(Chain):
    """Drafts from the target's state, embedding and output projection, as heads do."""

    name: ClassVar[str] = "head"
    capabilities = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})
    aux_layer_ids = (1,)

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.state: dict[str, list[torch.Tensor]] = {}

    def load(self, target: TargetHandle) -> None:
        self.embed, self.head = target.embed_tokens, target.lm_head

    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        at = 0
        for row, name in enumerate(batch.request_ids):
            kept = self.state.setdefault(name, [])
            del kept[batch.starts[row] :]
            for j in range(at, at + batch.counts[row]):
                assert batch.hidden_states is not None
                kept.append(batch.hidden_states[j] + batch.aux_hidden_states[0][j])
            at += batch.counts[row]

    @torch.inference_mode()
    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        rows = []
        for name, cap in zip(batch.request_ids, caps, strict=True):
            ids: list[int] = []
            while len(ids) < cap:
                last = ids[-1] if ids else self.held[name][-1]
                state = self.state[name][-1] + self.embed(torch.tensor(last))
                ids.append(int(self.head(state).argmax()))
            rows.append(ids)
        return Draft.from_lists(rows)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        super().finish(request_ids, reason)
        for name in request_ids:
            self.state.pop(name, None)


TOYS: dict[str, type[Proposer]] = {
    toy.name: toy for toy in (Chain, Tree, Learner, Recaller, Drawn, Siblings, Head)
}


def kit_config(**keys: Any) -> dict[str, Any]:
    """Return the configuration that the toys are checked with."""
    return {"num_speculative_tokens": 4, **keys}
