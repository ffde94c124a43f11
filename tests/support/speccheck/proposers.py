"""Proposers of every temper: right, partly right, random, malformed, raising, slow, and one that keeps the books."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from speccheck.malformed import MALFORMED
from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)


class ScriptConfig(ProposerConfig):
    """What a scripted proposer knows and how it errs."""

    texts: tuple[tuple[int, ...], ...] = ()
    """Whole texts, prompts included; a row that begins like one of them is continued with it."""
    wrong: float = 0.0
    """Share of drafted tokens that are replaced by random ones."""
    shape: Literal["chain", "tree", "mixed"] = "chain"
    """`mixed` changes from step to step."""
    is_chain: bool = False
    """Whether it declares that it drafts chains only."""
    finds: float = 1.0
    """Share of calls in which it drafts anything."""
    seed: int = 0
    fails_every: int = 0
    """Raise in every n-th call; 0 means never."""
    malformed_every: int = 0
    """Return something that is no good draft in every n-th call."""
    kinds: tuple[str, ...] = ()
    """Which malformed drafts to return, one after another; empty means all."""
    sleep_s: float = 0.0
    sleeps_every: int = 1


class Scripted(Proposer):
    """Continues known texts, with errors; everything it does depends on its seed and the text alone."""

    name: ClassVar[str] = "scripted"
    Config: ClassVar[type[ProposerConfig]] = ScriptConfig
    capabilities = frozenset({Capability.TREE})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, ScriptConfig)
        self.script = config
        if config.is_chain:
            self.capabilities = type(self).capabilities - {Capability.TREE}
        self.vocab_size = target.vocab_size
        self.num_calls = 0
        self.num_malformed = 0

    def propose(self, batch: ProposeBatch) -> Draft:
        self.num_calls += 1
        script = self.script
        if script.sleep_s and self.num_calls % script.sleeps_every == 0:
            time.sleep(script.sleep_s)
        if script.fails_every and self.num_calls % script.fails_every == 0:
            raise RuntimeError(f"call {self.num_calls} fails")
        draft = self.draft(batch)
        if script.malformed_every and self.num_calls % script.malformed_every == 0:
            kinds = script.kinds or tuple(MALFORMED)
            kind = kinds[self.num_malformed % len(kinds)]
            self.num_malformed += 1
            return MALFORMED[kind](draft, batch, self.vocab_size)  # type: ignore[return-value]  # that is the point
        return draft

    def draft(self, batch: ProposeBatch) -> Draft:
        """Return a well-formed draft."""
        rows, parents = [], []
        is_tree = self.script.shape == "tree" or (self.script.shape == "mixed" and self.num_calls % 2 == 0)
        for index in range(batch.batch_size):
            tokens = batch.token_ids(index)
            rng = random.Random(self.script.seed * 1_000_003 + len(tokens))
            most = batch.max_nodes[index]
            if self.script.finds < 1.0 and rng.random() >= self.script.finds:
                most = 0
            right = self._continuation(tokens, most, rng)
            ids, links = (self._tree if is_tree else self._chain)(right, most, rng)
            rows.append(ids)
            parents.append(links)
        return Draft.from_lists(rows, parents if is_tree else None)

    def _continuation(self, tokens: np.ndarray, count: int, rng: random.Random) -> list[int]:
        for text in self.script.texts:
            if len(text) > len(tokens) and list(text[: len(tokens)]) == tokens.tolist():
                known = list(text[len(tokens) : len(tokens) + count])
                break
        else:
            known = []
        return known + [rng.randrange(self.vocab_size) for _ in range(count - len(known))]

    def _chain(self, right: list[int], count: int, rng: random.Random) -> tuple[list[int], list[int]]:
        length = rng.choice([count, count, rng.randint(0, count)])
        ids = [
            rng.randrange(self.vocab_size) if rng.random() < self.script.wrong else t for t in right[:length]
        ]
        return ids, list(range(-1, length - 1))

    def _tree(self, right: list[int], count: int, rng: random.Random) -> tuple[list[int], list[int]]:
        """Mix the right path with wrong branches, in random order but parents first; duplicates happen."""
        ids: list[int] = []
        parents: list[int] = []
        end, depth = -1, 0  # the end of the right path so far
        while len(ids) < count:
            if depth < len(right) and rng.random() < 0.6:
                wrong = rng.random() < self.script.wrong
                ids.append(rng.randrange(self.vocab_size) if wrong else right[depth])
                parents.append(end)
                end, depth = len(ids) - 1, depth + 1
            else:
                parents.append(rng.randint(-1, len(ids) - 1))
                ids.append(rng.choice([rng.randrange(self.vocab_size), right[min(depth, len(right) - 1)]]))
        return ids, parents


@dataclass
class Told:
    """What a proposer has been told of one request."""

    tokens: list[int]
    num_prompt_tokens: int


class Recorder(Scripted):
    """A scripted proposer that checks what it is told against the contract and lists what is wrong.

    A test that runs it sets `engine`, so that the batch can be compared with what runs.
    """

    name: ClassVar[str] = "recorder"

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.engine: Any = None
        self.held: dict[str, Told] = {}
        self.finished: list[tuple[str, FinishReason, list[int]]] = []
        """Request, reason and the tokens held when it ended."""
        self.complaints: list[str] = []
        self.pieces: dict[str, list[tuple[int, int]]] = {}
        """Starts and counts of each request, in order of arrival."""
        self.feedback: dict[str, list[tuple[int, int]]] = {}

    needs_hidden = False

    def propose(self, batch: ProposeBatch) -> Draft:
        self.check(batch)
        return super().propose(batch)

    def check(self, batch: ProposeBatch) -> None:
        """Take in a batch and note what breaks the contract."""
        size = batch.batch_size
        fields = ("max_nodes", "num_tokens", "num_prompt_tokens", "starts", "counts")
        for name in (*fields, "last_num_drafted", "last_num_accepted", "sampling_params"):
            if len(getattr(batch, name)) != size:
                self.complaints.append(f"{name} has {len(getattr(batch, name))} rows of {size}")
        if len(set(batch.request_ids)) != size:
            self.complaints.append("a request has two rows")
        if sum(batch.counts) != len(batch.new_token_ids):
            self.complaints.append(
                f"{sum(batch.counts)} tokens counted, {len(batch.new_token_ids)} delivered"
            )
        if batch.new_token_ids.dtype != np.int32 or batch.new_token_ids.flags.writeable:
            self.complaints.append("new_token_ids is not a read-only int32 array")
        if self.engine is not None:
            missing = {s.request_id for s in self.engine._scheduler.running} - set(batch.request_ids)
            if missing:
                self.complaints.append(f"running requests without a row: {sorted(missing)}")
        at = 0
        for row, name in enumerate(batch.request_ids):
            start, count = batch.starts[row], batch.counts[row]
            news = batch.new_token_ids[at : at + count].tolist()
            at += count
            self._take(batch, row, name, start, news)

    def _take(self, batch: ProposeBatch, row: int, name: str, start: int, news: list[int]) -> None:
        told = self.held.setdefault(name, Told([], batch.num_prompt_tokens[row]))
        self.pieces.setdefault(name, []).append((start, len(news)))
        self.feedback.setdefault(name, []).append((batch.last_num_drafted[row], batch.last_num_accepted[row]))
        if start > len(told.tokens):
            self.complaints.append(f"{name}: a hole, {start} after {len(told.tokens)} tokens")
        del told.tokens[start:]
        told.tokens += news
        view = batch.token_ids(row)
        if view.dtype != np.int32 or len(view) != batch.num_tokens[row]:
            self.complaints.append(
                f"{name}: token_ids is {view.dtype} of {len(view)}, not {batch.num_tokens[row]}"
            )
        if told.tokens != view[: len(told.tokens)].tolist():
            self.complaints.append(f"{name}: tokens delivered are not those committed")
        if not self.needs_hidden and len(told.tokens) != batch.num_tokens[row]:
            self.complaints.append(f"{name}: {len(told.tokens)} of {batch.num_tokens[row]} tokens delivered")
        try:
            view[0] = 0
            self.complaints.append(f"{name}: token_ids can be written")
        except ValueError:
            pass
        if batch.max_nodes[row] < 0:
            self.complaints.append(f"{name}: max_nodes is {batch.max_nodes[row]}")
        if len(told.tokens) < batch.num_tokens[row] and batch.max_nodes[row]:
            self.complaints.append(
                f"{name}: a draft is wanted after {len(told.tokens)} tokens of {batch.num_tokens[row]}"
            )

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            told = self.held.pop(name, None)
            self.finished.append((name, reason, [] if told is None else told.tokens))


class HiddenRecorder(Recorder):
    """Keeps the hidden states that come with each token."""

    name: ClassVar[str] = "hidden_recorder"
    capabilities = frozenset({Capability.TREE, Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})
    aux_layer_ids = (0, 1)
    needs_hidden = True

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.states: dict[str, list[tuple[torch.Tensor, ...]]] = {}
        """For each request and token: the final state, and the inputs of the aux layers; None-like zeros first."""
        self.final: dict[str, tuple[list[int], list[tuple[torch.Tensor, ...]], FinishReason]] = {}

    def check(self, batch: ProposeBatch) -> None:
        super().check(batch)
        total = len(batch.new_token_ids)
        if batch.hidden_states is None:
            if total:
                self.complaints.append(f"{total} tokens came without hidden states")
            return
        tensors = (batch.hidden_states, *batch.aux_hidden_states)
        assert batch.has_hidden is not None
        for tensor in (*tensors, batch.has_hidden):
            if tensor.shape[0] != total:
                self.complaints.append(f"{tensor.shape[0]} states for {total} tokens")
                return
        at = 0
        for row, name in enumerate(batch.request_ids):
            kept = self.states.setdefault(name, [])
            start, count = batch.starts[row], batch.counts[row]
            if start > len(kept):
                self.complaints.append(f"{name}: a hole in the states")
            del kept[start:]
            for j in range(at, at + count):
                if bool(batch.has_hidden[j]) != (start + j - at > 0):
                    self.complaints.append(f"{name}: has_hidden is wrong at {start + j - at}")
                kept.append(tuple(tensor[j].clone() for tensor in tensors))
            at += count

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            tokens = list(self.held[name].tokens) if name in self.held else []
            self.final[name] = tokens, self.states.pop(name, []), reason
        super().finish(request_ids, reason)
