"""Passes over a scorer's target, with slots assigned and tokens committed as in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from specdec import SamplingParams
from specdec.engine import KVManager, Row, Step
from specdec.engine import Sequence as EngineSequence
from specdec.interfaces import Scorer, Scores
from specdec_testing.support.verdicts import broken, described

_BLOCK_SIZE = 16


@dataclass(frozen=True)
class PassRows:
    """The part of a pass that belongs to one request."""

    sequence: EngineSequence
    chunk: int
    """Number of committed tokens."""
    nodes: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None
    """None means a chain."""

    @property
    def is_decoding(self) -> bool:
        """Whether the chunk reaches the last committed token."""
        return self.sequence.num_computed + self.chunk == self.sequence.num_tokens

    @property
    def num_rows(self) -> int:
        """Number of rows of the pass, and of hidden states."""
        return self.chunk + len(self.nodes)

    def path(self, node: int) -> list[int]:
        """Return the text that ends with a node; -1 is the last committed token."""
        path: list[int] = []
        while node >= 0:
            path.append(self.nodes[node])
            node = node - 1 if self.parents is None else self.parents[node]
        committed: list[int] = self.sequence.token_ids.tolist()
        return committed + path[::-1]


class Passes:
    """Runs requests on one scorer.

    Args:
        scorer: a loaded scorer.
        max_len: the maximum context length it was loaded for.
    """

    def __init__(self, scorer: Scorer, max_len: int) -> None:
        self._scorer = scorer
        self._max_len = max_len
        self.kv = KVManager(scorer.cache, _BLOCK_SIZE, is_prefix_cached=False)

    def place(self, text: Sequence[int], params: SamplingParams | None = None) -> EngineSequence:
        """Create a request and assign cache slots to it."""
        sequence = EngineSequence(
            f"request-{len(text)}",
            np.array(text, np.int32),
            params or SamplingParams(temperature=1.0),
            seed=0,
            sample_index=0,
            max_num_tokens=self._max_len,
        )
        assert self.kv.admit(sequence, self._max_len)
        assert self.kv.reserve(sequence, self._max_len, 0)
        return sequence

    def score(self, parts: Sequence[PassRows]) -> Scores:
        """Run one pass."""
        rows = []
        for part in parts:
            start, end = part.sequence.num_computed, part.sequence.num_tokens
            row = Row(part.sequence, start, end, len(part.nodes), part.chunk, part.is_decoding)
            if part.is_decoding:
                row.draft(part.nodes, part.parents)
            rows.append(row)
        step = Step(rows)
        step.sampled = [row for row in rows if row.is_sampled]
        try:
            return self._scorer.score(step)
        except Exception as error:
            broken(f"score raised {described(error)}")

    def commit(self, part: PassRows, accepted: Sequence[int], token: int) -> None:
        """Keep the rows of the chunk and of the accepted nodes, and append the emitted tokens."""
        sequence = part.sequence
        if accepted and accepted[-1] != len(accepted) - 1:
            first = sequence.first_slot + sequence.num_computed + part.chunk
            cache = self._scorer.cache
            cache.gather(*(torch.tensor(part, device=cache.device) for part in ([first], [list(accepted)])))
        sequence.num_computed += part.chunk + len(accepted)
        sequence.append([*(part.nodes[node] for node in accepted), token], len(accepted))

    def advance(self, part: PassRows) -> None:
        """Keep the rows of a chunk of a prompt."""
        part.sequence.num_computed += part.chunk


@torch.inference_mode()
def reference_rows(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the logits after each text `[R, V]`, each text run alone without a cache."""
    rows = []
    for text in texts:
        ids = torch.tensor([list(text)], device=model.device)
        rows.append(model(input_ids=ids, use_cache=False).logits[0, -1].float())
    return torch.stack(rows)


@torch.inference_mode()
def reference_states(model: PreTrainedModel, text: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Return the inputs of every layer and, at the end, the state after the final norm, each `[n, H]`."""
    ids = torch.tensor([list(text)], device=model.device)
    output = model(input_ids=ids, use_cache=False, output_hidden_states=True)
    return tuple(state[0].float() for state in output.hidden_states)


def difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference between logits or states, relative to their size."""
    got, expected = got.detach().float().cpu(), expected.detach().float().cpu()
    if got.shape != expected.shape:
        broken(f"shape {tuple(got.shape)} where {tuple(expected.shape)} belongs")
    return float((got - expected).abs().max() / expected.abs().max().clamp_min(1.0))
