"""A proposer that draws its tokens, honestly, from a law of its own: chains, and siblings drawn with or without replacement."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)


class DrawingConfig(ProposerConfig):
    """What is drawn."""

    shape: Literal["chain", "iid", "without_replacement"] = "chain"
    """One token after the other; or two siblings, and two children of the first of them."""
    sharpness: float = 1.0
    """0 draws uniformly; more makes the law depend more on the token before."""


class Drawing(Proposer):
    """Draws from softmax(sharpness * table[last token]), a fixed table of random numbers."""

    name: ClassVar[str] = "drawing"
    Config: ClassVar[type[ProposerConfig]] = DrawingConfig
    capabilities = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, DrawingConfig)
        self.config: DrawingConfig = config
        generator = torch.Generator().manual_seed(3)
        self.table = config.sharpness * torch.randn(target.vocab_size, target.vocab_size, generator=generator)

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft as many nodes as every row has room for."""
        if self.config.shape == "chain":
            return self._draw(batch, parents=[node - 1 for node in range(max(batch.max_nodes, default=0))])
        return self._draw(batch, parents=[-1, -1, 0, 0][: max(batch.max_nodes, default=0)])

    def _draw(self, batch: ProposeBatch, parents: list[int]) -> Draft:
        size, width, vocab = batch.batch_size, len(parents), len(self.table)
        tokens = torch.full((size, width), -1)
        probs = torch.zeros(size, width + 1, vocab)
        probs[..., 0] = 1.0
        for node, parent in enumerate(parents):
            rows = [i for i in range(size) if node < batch.max_nodes[i]]
            if not rows:
                continue
            before = [int(batch.token_ids(i)[-1]) if parent < 0 else int(tokens[i, parent]) for i in rows]
            logits = self.table[before].clone()
            drawn_from = torch.softmax(logits, -1)
            if self.config.shape == "without_replacement":
                for place, i in enumerate(rows):
                    taken = [int(tokens[i, other]) for other in range(node) if parents[other] == parent]
                    logits[place, taken] = -torch.inf
            drawn, _ = batch.draws.sample(logits, rows, node)
            tokens[rows, node] = drawn
            probs[rows, parent + 1] = drawn_from
        sampling = DraftSampling.IID
        if self.config.shape == "without_replacement":
            sampling = DraftSampling.WITHOUT_REPLACEMENT
        is_chain = self.config.shape == "chain"
        links = None if is_chain else torch.tensor(parents, dtype=torch.int64).expand(size, width).clone()
        return Draft(tokens, links, sampling, probs)
