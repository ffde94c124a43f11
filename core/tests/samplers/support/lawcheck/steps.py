"""Many requests through many steps of a verifier, with its own noise, on a target that knows the last token only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lawcheck.world import batch_of
from specdec.interfaces import DraftSampling, DrawnNodes, Sampler, Scores
from specdec.noise import Stream, node_word
from specdec_kernels.cpu.rows.noise import multinomial_rows

Draw = Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], np.ndarray]
"""Takes weights `[B, V]`, seeds and committed tokens `[B]`, a node and its depth; returns `[B]` tokens."""


def drafting(
    weights: np.ndarray, seeds: np.ndarray, num_tokens: np.ndarray, node: int, depth: int
) -> np.ndarray:
    """Draw as proposers do: a stream of its own, keyed by the step and the node."""
    return multinomial_rows(weights, seeds, num_tokens, 0 * seeds, 0 * seeds + node_word(Stream.DRAFT, node))


@dataclass(frozen=True)
class Chatter:
    """A target, and a proposer that learns from what was discarded of its last draft."""

    p: np.ndarray
    """`[V, V]`: the target's distribution after each token."""
    q: np.ndarray
    """`[V + 1, V, V]`: the draft's distribution after each token, for each last token of the last draft; V if accepted."""
    parents: list[int]

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.p.shape[0]

    @classmethod
    def random(cls, seed: int, vocab_size: int, parents: list[int]) -> Chatter:
        """Draw distributions: a mild target, and a draft of strong and changing opinions."""
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.full(vocab_size, 3.0), vocab_size)
        q = rng.dirichlet(np.full(vocab_size, 0.6), (vocab_size + 1, vocab_size)) + 0.02
        return cls(p, q / q.sum(-1, keepdims=True), parents)

    def exact(self, length: int) -> np.ndarray:
        """Return the distribution of texts after token 0, `[V ** length]`."""
        law = self.p[0]
        for _ in range(length - 1):
            law = (law.reshape(-1, self.vocab_size)[:, :, None] * self.p).ravel()
        return law

    def run(self, sampler: Sampler, count: int, length: int, draw: Draw = drafting) -> np.ndarray:
        """Return how often each text of `length` tokens came out of `count` requests, `[V ** length]`."""
        size, width = self.vocab_size, len(self.parents)
        texts = np.zeros((count, length + width + 2), int)
        num_tokens = np.ones(count, int)
        memory = np.full(count, size)
        active = np.arange(count)
        while len(active):
            last = texts[active, num_tokens[active] - 1]
            tokens, laws = self._draft(last, memory[active], active, num_tokens[active], draw)
            verdict = self._verify(sampler, last, tokens, laws, active, num_tokens[active])
            emitted, accepted = verdict.token_ids, verdict.accepted_nodes
            for row, request in enumerate(active.tolist()):
                end = num_tokens[request] + len(emitted[row])
                texts[request, num_tokens[request] : end] = emitted[row]
                num_tokens[request] = end
                memory[request] = size if width - 1 in accepted[row] else tokens[row, -1]
            active = active[num_tokens[active] <= length]
        cells = np.ravel_multi_index(tuple(texts[:, 1 : length + 1].T), (size,) * length)
        return np.bincount(cells, minlength=size**length)

    def _draft(
        self, last: np.ndarray, memory: np.ndarray, requests: np.ndarray, num_tokens: np.ndarray, draw: Draw
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens `[B, N]` and the distributions `[B, N + 1, V]` they were drawn from, siblings independently."""
        columns = [last]
        laws = np.zeros((len(last), len(self.parents) + 1, self.vocab_size))
        depths = [0]
        for node, parent in enumerate(self.parents):
            laws[:, parent + 1] = self.q[memory, columns[parent + 1]]
            depths.append(depths[parent + 1] + 1)
            columns.append(draw(laws[:, parent + 1], requests, num_tokens, node, depths[-1]))
        return np.stack(columns[1:], 1), laws

    def _verify(self, sampler, last, tokens, laws, requests, num_tokens):
        count, width = tokens.shape
        p = self.p[np.concatenate((last[:, None], tokens), 1)].reshape(-1, self.vocab_size)
        logits = torch.from_numpy(np.log(p))
        is_chain = self.parents == list(range(-1, width - 1))
        drawn = DrawnNodes(torch.from_numpy(tokens), torch.from_numpy(laws), DraftSampling.IID)
        batch = batch_of(
            tokens.tolist(), None if is_chain else [self.parents] * count, drawn,
            seeds=requests.tolist(), num_tokens=num_tokens.tolist(),
        )  # fmt: skip
        return sampler.verify(Scores(logits, logits), batch)
