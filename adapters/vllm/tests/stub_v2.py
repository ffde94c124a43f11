"""vLLM's V2 model runner and its asynchronous scheduler, reduced to what the adapter touches, over texts that are known."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from speccheck.hosting import states_of
from stub_engine import MAX_LEN, VOCAB, StubParams

K, LINES, BEHIND_END = 3, 6, 1


class StubRunner:
    """Emits of each text what its drafted tokens have right and one token more."""

    num_speculative_steps = K
    vocab_size = VOCAB
    use_aux_hidden_state_outputs = False
    device = torch.device("cpu")

    def __init__(self, texts: dict[str, list[int]], prompts: dict[str, int]) -> None:
        self.texts, self.prompts, self.speculator = texts, prompts, None
        self.req_states = SimpleNamespace(
            max_num_reqs=LINES,
            all_token_ids=SimpleNamespace(gpu=torch.zeros(LINES, MAX_LEN, dtype=torch.int32)),
            total_len=SimpleNamespace(gpu=torch.zeros(LINES, dtype=torch.int32)),
            last_sampled_tokens=torch.zeros(LINES, 1, dtype=torch.int64),
            draft_tokens=torch.zeros(LINES, K, dtype=torch.int64),
            req_id_to_index={},
        )
        self.free = list(range(LINES))
        self.told_grammar: list[tuple[list[str], list[list[int]]]] = []
        self.draft_tokens_handler = SimpleNamespace(
            set_draft_tokens=lambda batch, drafts: self.told_grammar.append((batch.req_ids, drafts.tolist()))
        )
        self.verified: list[list[int]] = []
        self._computed: dict[str, int] = {}

    def finish_requests(self, scheduled: Any) -> None:
        for name in scheduled.finished_req_ids | (scheduled.preempted_req_ids or set()):
            self.free.append(self.req_states.req_id_to_index.pop(name))

    def add_requests(self, scheduled: Any) -> None:
        states = self.req_states
        for new in scheduled.scheduled_new_reqs:
            line = states.req_id_to_index[new.req_id] = self.free.pop()
            ids = new.prefill_token_ids
            states.all_token_ids.gpu[line, : len(ids)] = torch.tensor(ids)
            states.total_len.gpu[line] = len(ids)
            self._computed[new.req_id] = 0

    def update_requests(self, scheduled: Any) -> None:
        pass

    def execute(self, scheduled: Any) -> Any:
        """`execute_model` and `sample_tokens`."""
        self.finish_requests(scheduled)
        self.add_requests(scheduled)
        self.update_requests(scheduled)
        self._scheduled = scheduled
        return self.sample_tokens(None)

    def sample_tokens(self, grammar: Any) -> Any:
        scheduled, states = self._scheduled, self.req_states
        names = sorted(scheduled.num_scheduled_tokens)
        lines = [states.req_id_to_index[name] for name in names]
        ids, counts, rejected, starts = np.zeros((len(names), K + 1), np.int64), [], [], [0]
        lengths, computed, drafted = [], [self._computed[name] for name in names], []
        for row, (name, line) in enumerate(zip(names, lines, strict=True)):
            length, text = int(states.total_len.gpu[line]), self.texts[name]
            num_drafted = len(scheduled.scheduled_spec_decode_tokens.get(name, ()))
            chunk = scheduled.num_scheduled_tokens[name]
            emitted: list[int] = []
            if computed[row] + chunk - num_drafted >= length:  # not a piece of a prompt
                draft = states.draft_tokens[line, :num_drafted].tolist()
                self.verified.append(draft)
                kept = 0
                while kept < num_drafted and text[length + kept : length + kept + 1] == [draft[kept]]:
                    kept += 1
                emitted = (text[length : length + kept + 1] + [BEHIND_END] * (K + 1))[: kept + 1]
            ids[row, : len(emitted)] = emitted
            counts.append(len(emitted))
            rejected.append(num_drafted + 1 - len(emitted) if emitted else 0)
            lengths.append(length)
            drafted.append(num_drafted)
            starts.append(starts[-1] + chunk)
            self._computed[name] += chunk - rejected[-1]
            states.all_token_ids.gpu[line, length : length + len(emitted)] = torch.tensor(emitted)
            states.total_len.gpu[line] += len(emitted)
            states.last_sampled_tokens[line] = states.all_token_ids.gpu[line, length + len(emitted) - 1]
        batch = SimpleNamespace(
            req_ids=names,
            num_reqs=len(names),
            idx_mapping=torch.tensor(lines),
            num_draft_tokens_per_req=np.array(drafted),
            query_start_loc_np=np.array(starts),
            num_computed_tokens_np=np.array(computed) + K,  # a bound, behind prompts
            is_prefilling_np=np.array([c < self.prompts[n] for c, n in zip(computed, names, strict=True)]),
            num_computed_prefill_tokens_np=np.minimum(computed, [self.prompts[name] for name in names]),
            num_scheduled_tokens=np.diff(starts),
            prefill_len_np=np.array([self.prompts[name] for name in names]),
        )
        batch.num_computed_tokens_np[batch.is_prefilling_np] -= K
        rows = [states_of(c, s, 3) for c, s in zip(computed, np.diff(starts), strict=True)]
        final, *aux = (torch.cat(kind) for kind in zip(*rows, strict=True))
        tensors = torch.tensor(counts), torch.tensor(rejected)
        last, noise = states.last_sampled_tokens, torch.ones(LINES)
        with_aux = aux if self.use_aux_hidden_state_outputs else None
        drafts = self.speculator.propose(batch, {}, {}, final, with_aux, *tensors, last, None, noise, noise)
        assert (drafts.dtype, tuple(drafts.shape)) == (torch.int64, (len(names), K))
        states.draft_tokens[batch.idx_mapping] = drafts
        return SimpleNamespace(
            copy_event=SimpleNamespace(synchronize=lambda: None),
            model_runner_output=SimpleNamespace(req_id_to_index={name: i for i, name in enumerate(names)}),
            sampled_token_ids=ids,
            num_sampled_tokens_np=np.array(counts),
        )


class StubScheduler:
    """Schedules a step once all but the last `num_behind` ones are read.

    Args:
        runner: what runs them.
        num_behind: 1 for asynchronous scheduling, 0 without.
        piece: the most tokens of a prompt in one step.
    """

    def __init__(self, runner: StubRunner, num_behind: int, piece: int = 64) -> None:
        self.runner, self.num_behind, self.piece = runner, num_behind, piece
        self.known: dict[str, list[int]] = {}
        self._coming: dict[str, int] = {}
        self._launched = deque[tuple[Any, Any]]()
        self._gone, self._new, self.preempted = set[str](), list[Any](), set[str]()
        self.grammar = False

    def add(self, name: str, **keys: Any) -> None:
        """Add a request; after `preempt` it goes on from what is known of it."""
        num_prompt, text = self.runner.prompts[name], self.runner.texts[name]
        params = StubParams(max_tokens=len(text) - num_prompt, **keys)
        known = self.known.setdefault(name, text[:num_prompt])
        self._coming[name] = 0
        new = SimpleNamespace(
            req_id=name,
            prompt_token_ids=text[:num_prompt],
            prefill_token_ids=list(known),
            sampling_params=params,
        )
        self._new.append(new)

    def end(self, name: str, *, is_preempted: bool = False) -> None:
        """Take a request out."""
        del self._coming[name]
        (self.preempted if is_preempted else self._gone).add(name)

    def step(self) -> None:
        """Launch a step and read another one."""
        chunks, drafted = {}, {}
        for name, done in self._coming.items():
            rest = len(self.known[name]) - done
            if rest > 0 and done < self.runner.prompts[name]:
                chunks[name] = min(rest, self.piece)
            else:
                drafted[name] = [-1] * K
                chunks[name] = 1 + K
            self._coming[name] += min(chunks[name], max(1, rest))
        scheduled = SimpleNamespace(
            scheduled_new_reqs=self._new,
            finished_req_ids=self._gone,
            preempted_req_ids=self.preempted,
            num_scheduled_tokens=chunks,
            scheduled_spec_decode_tokens=drafted,
            has_structured_output_requests=self.grammar,
        )
        self._new, self._gone, self.preempted = [], set(), set()
        self._launched.append((scheduled, self.runner.execute(scheduled) if chunks else None))
        if not chunks:
            self.runner.finish_requests(scheduled)
            self._launched.pop()
        while len(self._launched) > (self.num_behind if chunks else 0):
            self._read(*self._launched.popleft())

    def run(self) -> dict[str, list[int]]:
        """Run all requests to their ends; returns their texts."""
        while self._coming:
            self.step()
        self.step()  # tells who ended last
        return self.known

    def _read(self, scheduled: Any, output: Any) -> None:
        for name, row in output.model_runner_output.req_id_to_index.items():
            if name not in self._coming:
                continue
            text = self.runner.texts[name]
            ids = output.sampled_token_ids[row, : output.num_sampled_tokens_np[row]].tolist()
            self.known[name] = (self.known[name] + ids)[: len(text)]
            if len(self.known[name]) == len(text):
                self.end(name)


@pytest.fixture
def v2_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`specdec_vllm.v2.speculator`, over a stub of vLLM's base class."""
    names = ["vllm"]
    for part in ("v1", "worker", "gpu", "spec_decode", "speculator"):
        names.append(f"{names[-1]}.{part}")
        monkeypatch.setitem(sys.modules, names[-1], ModuleType(names[-1]))
    sys.modules[names[-1]].BaseSpeculator = type("BaseSpeculator", (), {})  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "specdec_vllm.v2.speculator", raising=False)
    yield import_module("specdec_vllm.v2.speculator")
    sys.modules.pop("specdec_vllm.v2.speculator", None)
