"""vLLM's model runner and sampler, reduced to what the adapter touches, over a target that is two tables."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

VOCAB, HIDDEN, MAX_LEN = 32, 4, 96
REJECTED = -1


@dataclass
class StubParams:
    """`vllm.SamplingParams`, as far as it is read."""

    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int = 24
    min_tokens: int = 0
    top_p: float = 1.0
    top_k: int = 0
    ignore_eos: bool = True
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    extra_args: dict[str, Any] | None = None
    structured_outputs: Any = None

    @property
    def all_stop_token_ids(self) -> set[int]:
        return {*self.stop_token_ids, *(() if self.ignore_eos else (0,))}


@dataclass
class StubState:
    """`CachedRequestState`."""

    prompt_token_ids: list[int]
    sampling_params: StubParams
    num_computed_tokens: int = 0
    generator: torch.Generator | None = None
    draft: list[int] = field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)


class StubSampler:
    """`vllm.v1.sample.sampler.Sampler`: one number of a request's generator for each token, as on CPUs."""

    def apply_logits_processors(self, logits, sampling, predict_bonus_token):
        return logits

    def greedy_sample(self, logits):
        # On CPUs vLLM has an operation of its own for this, which takes nothing else.
        assert logits.dtype == torch.float32
        return logits.argmax(-1)

    def topk_topp_sampler(self, logits, generators, k, p):
        logits = apply_top_k_top_p(logits, k, p)
        rows = []
        for row, line in enumerate(logits):
            seed = int(torch.randint(0, 2**31, (1,), generator=generators.get(row)))
            noise = torch.empty_like(line).exponential_(generator=torch.Generator().manual_seed(seed))
            rows.append(int((line.softmax(-1) / noise).argmax()))
        return torch.tensor(rows), None

    def __call__(self, logits, sampling):
        best = logits.argmax(-1)
        hot = logits / torch.where(sampling.temperature > 0, sampling.temperature, 1.0).unsqueeze(1)
        drawn, _ = self.topk_topp_sampler(hot, sampling.generators, sampling.top_k, sampling.top_p)
        return torch.where(sampling.temperature > 0, drawn, best).tolist()


class StubRejectionSampler(torch.nn.Module):
    """`RejectionSampler`: its processors; verifying by it would be wrong."""

    is_processed_logprobs_mode = False

    def __init__(self) -> None:
        super().__init__()
        self.sampler = StubSampler()
        self.num_tries = 0

    def apply_logits_processors(self, logits, sampling, metadata):
        return logits

    def forward(self, metadata, draft_probs, logits, sampling):
        self.num_tries += 1


def apply_top_k_top_p(logits, k, p):
    """Only top-k, which is enough to see that each row has its own."""
    if k is None:
        return logits
    for row, count in enumerate(k.tolist()):
        kept = logits[row].topk(min(count, logits.shape[1])).values[-1]
        logits[row][logits[row] < kept] = -torch.inf
    return logits


class StubModel:
    """The target: the distribution of a token depends on the two before it."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(11)
        self.last, self.prev = (3 * torch.randn(VOCAB, VOCAB, generator=generator) for _ in range(2))
        self.aux_layers: tuple[int, ...] = ()

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        self.aux_layers = tuple(sorted(set(layers)))

    def logits(self, tokens: list[int]) -> torch.Tensor:
        return self.last[tokens[-1]] + 0.5 * self.prev[tokens[-2]]


class StubRunner:
    """`GPUModelRunner` and vLLM's scheduler: pieces of prompts, drafts, requests that come and go."""

    def __init__(self, piece: int = 1000) -> None:
        self.model, self.piece = StubModel(), piece
        self.requests: dict[str, StubState] = {}
        self.rejection_sampler: Any = StubRejectionSampler()
        self.device, self.max_model_len = torch.device("cpu"), MAX_LEN
        self.use_aux_hidden_state_outputs = False
        self.input_batch = SimpleNamespace(
            req_ids=[], num_reqs=0, token_ids_cpu=None, num_tokens_no_spec=None
        )
        self.texts: dict[str, list[int]] = {}
        self.finished: set[str] = set()
        self.num_steps = 0

    def get_model(self) -> StubModel:
        return self.model

    def propose_draft_token_ids(self, *_: Any) -> list[list[int]]:
        return [[] for _ in self.input_batch.req_ids]

    def _update_states(self, scheduler_output: Any) -> None:
        for name in scheduler_output.finished_req_ids:
            del self.requests[name]

    def add(self, name: str, prompt: list[int], params: StubParams, num_cached: int = 0) -> None:
        state = StubState(list(prompt), params, num_cached)
        if params.seed is not None and params.temperature:
            state.generator = torch.Generator().manual_seed(params.seed)
        self.requests[name], self.texts[name] = state, list(prompt)

    def abort(self, name: str) -> None:
        self.finished.add(name)

    def preempt(self, name: str) -> None:
        self.requests[name].num_computed_tokens = 0
        self.requests[name].draft = []

    def step(self) -> None:
        """Run one step over all requests."""
        self.num_steps += 1
        running = [name for name in self.requests if name not in self.finished]
        scheduled, drafts = {}, {}
        for name in running:
            state, text = self.requests[name], self.texts[name]
            missing = len(text) - state.num_computed_tokens
            chunk = min(missing, self.piece)
            drafts[name] = state.draft if chunk == missing else []
            scheduled[name] = chunk + len(drafts[name])
        output = SimpleNamespace(
            finished_req_ids=set(self.finished),
            num_scheduled_tokens=scheduled,
            scheduled_spec_decode_tokens={n: d for n, d in drafts.items() if d},
            num_spec_tokens_to_schedule=4,
            total_num_scheduled_tokens=sum(scheduled.values()),
        )
        self._update_states(output)
        self.finished.clear()
        self._fill_batch(running)
        sampled = self._sample(running, drafts, scheduled)
        self._bookkeep(running, sampled)
        states = self._states(running, drafts, scheduled)
        drafted = self.propose_draft_token_ids(
            output, sampled, None, states[0], None, list(states[1:]) or None, None, object(), None
        )
        for row, name in enumerate(running):
            state, emitted = self.requests[name], sampled[row]
            state.num_computed_tokens += scheduled[name] - (
                len(drafts[name]) + 1 - len(emitted) if emitted else 0
            )
            state.draft = list(drafted[row])
            self._end(name, emitted)

    def run(self, limit: int = 400) -> dict[str, list[int]]:
        """Run until all requests have ended; returns their texts."""
        while set(self.requests) - self.finished:
            self.step()
            assert self.num_steps < limit
        self.step()
        return self.texts

    def _fill_batch(self, running: list[str]) -> None:
        tokens = np.zeros((len(running), MAX_LEN + 8), np.int32)
        for row, name in enumerate(running):
            tokens[row, : len(self.texts[name])] = self.texts[name]
        batch = self.input_batch
        batch.req_ids, batch.num_reqs, batch.token_ids_cpu = running, len(running), tokens
        batch.num_tokens_no_spec = np.array([len(self.texts[name]) for name in running], np.int32)

    def _is_partial(self, name: str, scheduled: dict[str, int]) -> bool:
        return self.requests[name].num_computed_tokens + scheduled[name] < len(self.texts[name])

    def _sample(
        self, running: list[str], drafts: dict[str, list[int]], scheduled: dict[str, int]
    ) -> list[list[int]]:
        params = [self.requests[name].sampling_params for name in running]
        cuts = [p.top_k or VOCAB for p in params]
        generators = {row: self.requests[name].generator for row, name in enumerate(running)}
        sampling = SimpleNamespace(
            temperature=torch.tensor([p.temperature for p in params]),
            top_k=torch.tensor(cuts) if min(cuts, default=VOCAB) < VOCAB else None,
            top_p=None,
            generators={row: g for row, g in generators.items() if g is not None},
            max_num_logprobs=None,
            all_greedy=not any(p.temperature for p in params),
            no_penalties=True,
            allowed_token_ids_mask=None,
            bad_words_token_ids={},
            thinking_budget_state_holder=None,
            logitsprocs=SimpleNamespace(argmax_invariant=[], non_argmax_invariant=[]),
        )
        rows, counts = [], [len(drafts[name]) for name in running]
        for name in running:
            path = list(self.texts[name])
            rows.append(self.model.logits(path))
            for token in drafts[name]:
                path.append(token)
                rows.append(self.model.logits(path))
        if not rows:
            return []
        if any(counts):
            emitted = self._verify(
                torch.stack(rows), counts, [t for n in running for t in drafts[n]], sampling
            )
        else:
            emitted = [[token] for token in self.rejection_sampler_of_stock(torch.stack(rows), sampling)]
        return [
            [] if self._is_partial(n, scheduled) else row for n, row in zip(running, emitted, strict=True)
        ]

    def rejection_sampler_of_stock(self, logits: torch.Tensor, sampling: Any) -> list[int]:
        sampler = getattr(self.rejection_sampler, "stock", self.rejection_sampler).sampler
        return sampler(logits, sampling)

    def _verify(
        self, logits: torch.Tensor, counts: list[int], flat: list[int], sampling: Any
    ) -> list[list[int]]:
        starts = [sum(counts[:row]) + row for row in range(len(counts))]
        metadata = SimpleNamespace(
            num_draft_tokens=counts,
            draft_token_ids=torch.tensor(flat, dtype=torch.int32),
            max_spec_len=max(counts),
            target_logits_indices=torch.tensor(
                [s + i for s, n in zip(starts, counts, strict=True) for i in range(n)], dtype=torch.int32
            ),
            bonus_logits_indices=torch.tensor([s + n for s, n in zip(starts, counts, strict=True)]),
        )
        output = self.rejection_sampler(metadata, None, logits, sampling)
        assert output.sampled_token_ids.dtype == torch.int32
        return [[t for t in row if t != REJECTED] for row in output.sampled_token_ids.tolist()]

    def _bookkeep(self, running: list[str], sampled: list[list[int]]) -> None:
        batch = self.input_batch
        for row, name in enumerate(running):
            end = batch.num_tokens_no_spec[row] + len(sampled[row])
            batch.token_ids_cpu[row, batch.num_tokens_no_spec[row] : end] = sampled[row]
            batch.num_tokens_no_spec[row] = end
            self.texts[name] += sampled[row]

    def _states(
        self, running: list[str], drafts: dict[str, list[int]], scheduled: dict[str, int]
    ) -> list[torch.Tensor]:
        """Return made-up states of every row: its position, and 1000 times the layer's index."""
        positions = [
            self.requests[name].num_computed_tokens + i for name in running for i in range(scheduled[name])
        ]
        final = torch.tensor(positions, dtype=torch.float32)[:, None].repeat(1, HIDDEN) + 1.0
        return [final, *(final + 1000.0 * (layer + 1) for layer in self.model.aux_layers)]

    def _end(self, name: str, emitted: list[int]) -> None:
        params, text = self.requests[name].sampling_params, self.texts[name]
        num_prompt = self.requests[name].num_prompt_tokens
        for place in range(len(text) - len(emitted), len(text)):
            if text[place] in params.all_stop_token_ids or place + 1 - num_prompt >= params.max_tokens:
                del text[place + 1 :]
                self.finished.add(name)
                return


@pytest.fixture(autouse=True)
def stub_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the parts of vLLM that the adapter imports where it looks for them."""
    names = ("vllm", "vllm.v1", "vllm.v1.outputs", "vllm.v1.sample", "vllm.v1.sample.ops")
    for name in (*names, "vllm.v1.sample.ops.topk_topp_sampler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm"].__version__ = "0.32.0"  # type: ignore[attr-defined]
    sys.modules["vllm.v1.outputs"].SamplerOutput = SimpleNamespace  # type: ignore[attr-defined]
    sampling = sys.modules["vllm.v1.sample.ops.topk_topp_sampler"]
    sampling.apply_top_k_top_p = apply_top_k_top_p  # type: ignore[attr-defined]
