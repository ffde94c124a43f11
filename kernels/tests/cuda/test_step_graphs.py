"""Recorded drafts whose steps need no cache: what they choose, padding, and how they fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from kernelchains import chosen_by_hand
from speccheck.recorder import Rerun

from specdec.engine.sequence import Sequence
from specdec.engine.speculation.shown import EngineDraws
from specdec.interfaces import ChainRules, ChainWork
from specdec.interfaces.draws import NoiseKeys
from specdec.logits.pipeline import apply_temperature_and_truncation
from specdec.sampling_params import SamplingParams
from specdec_kernels.cuda.graphs import StepGraphs

NUM_IDS, WIDTH, MOST_STEPS = 24, 6, 4
NAMES = np.arange(NUM_IDS) * 3 + 1
TEMPERATURES = [0.7, 0.0, 1.3]
LAST = np.array([5, 0, 9])
RULES = {
    "greedy or coupled": ChainRules(NUM_IDS),
    "reduced": ChainRules(NUM_IDS, NAMES),
    "drawn": ChainRules(NUM_IDS, NAMES, is_drawn=True),
}


class MadeUp:
    """Steps whose logits depend on the state, the token before and the depth."""

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        return states * 2.0

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mixed = states.sum(1, keepdim=True) + token_ids[:, None] * 7.0 + torch.arange(NUM_IDS + 2) * 5.0
        return states * 0.5 + token_ids[:, None] + index, 2.0 * torch.sin(mixed)


def sequences_of(temperatures: list[float]) -> list[Sequence]:
    prompts = [np.arange(3 + i, dtype=np.int32) for i in range(len(temperatures))]
    return [
        Sequence(str(i), prompt, SamplingParams(temperature=t), seed=9 + i, sample_index=i, max_num_tokens=99)
        for i, (prompt, t) in enumerate(zip(prompts, temperatures, strict=True))
    ]


def work_of(rules: ChainRules, temperatures: list[float], num_steps: int) -> ChainWork:
    keys = EngineDraws(sequences_of(temperatures)).coupled_keys(range(len(temperatures)))
    return ChainWork([], [], num_steps, temperatures, keys, rules)


def by_hand(
    states: torch.Tensor, temperatures: list[float], num_steps: int, rules: ChainRules
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens `[R, K]` and q `[R, K, num_ids]`, chosen as proposers choose step by step."""
    draws, steps = EngineDraws(sequences_of(temperatures)), MadeUp()
    token_ids, tokens, laws = torch.from_numpy(LAST[: len(temperatures)]), [], []
    states = steps.begin(states)
    for step in range(num_steps):
        states, logits = steps.step(step, states, token_ids)
        token_ids, law = chosen_by_hand(logits[:, :NUM_IDS], temperatures, draws, rules, step)
        tokens.append(token_ids)
        laws.append(law)
    return torch.stack(tokens, 1), torch.stack(laws, 1)


def made(rules: ChainRules, recorder: Rerun | None = None) -> StepGraphs:
    graphs = StepGraphs(MadeUp(), recorder or Rerun(), torch.zeros(WIDTH))
    graphs.prepare(3, work_of(rules, [0.0], MOST_STEPS))
    return graphs


@pytest.mark.parametrize("num_steps", [1, MOST_STEPS, MOST_STEPS + 2])
@pytest.mark.parametrize("temperatures", [TEMPERATURES, [0.0, 0.0], [0.9]])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_what_is_chosen(rules: ChainRules, temperatures: list[float], num_steps: int) -> None:
    graphs, count = made(rules), len(temperatures)
    for seed in range(3):
        states = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
        chains = graphs.draft(LAST[:count], [*states], work_of(rules, temperatures, num_steps))
        tokens, laws = by_hand(states, temperatures, num_steps, rules)
        assert torch.equal(chains.token_ids[:, :num_steps], tokens)
        if rules.is_drawn and any(temperatures):
            hot = torch.tensor(temperatures) > 0
            torch.testing.assert_close(chains.draft_probs[hot, :num_steps], laws[hot])
        else:
            assert not chains.draft_probs.numel()
    is_recorded = num_steps <= MOST_STEPS
    assert (graphs.num_replays, graphs.num_plain) == ((3, 0) if is_recorded else (0, 3))


def test_q_is_what_cuts_leave() -> None:
    rules = RULES["drawn"]
    params = [SamplingParams(temperature=0.7, top_k=5, top_p=0.9), SamplingParams(temperature=1.5, min_p=0.1)]
    temperatures = [own.temperature for own in params]
    graphs, states = made(rules), torch.randn(2, WIDTH)
    cuts = [(own.top_k, own.top_p, own.min_p) for own in params]
    chains = graphs.draft(LAST[:2], [*states], replace(work_of(rules, temperatures, 3), cuts=cuts))
    steps, token_ids = MadeUp(), torch.from_numpy(LAST[:2])
    states = steps.begin(states)
    draws = EngineDraws(sequences_of(temperatures))
    for step in range(3):
        states, logits = steps.step(step, states, token_ids)
        kept = apply_temperature_and_truncation(logits[:, :NUM_IDS].clone(), params, [1, 1])
        drawn, law = draws.sample(kept, [0, 1], step)
        token_ids = torch.from_numpy(NAMES)[drawn]
        assert (law == 0).any()
        assert torch.equal(chains.token_ids[:, step], token_ids)
        torch.testing.assert_close(chains.draft_probs[:, step], law)


def test_a_cut_leaves_the_best_id() -> None:
    graphs, states = made(RULES["reduced"]), torch.randn(1, WIDTH)
    greedy, _ = by_hand(states, [0.0], 1, RULES["reduced"])
    for seed in range(20):
        keys = NoiseKeys(np.array([seed]), np.array([0]), np.array([7]))
        work = ChainWork([], [], 1, [5.0], keys, RULES["reduced"], [(1, 1.0, 0.0)])
        assert torch.equal(graphs.draft(LAST[:1], [*states], work).token_ids[:, :1], greedy)


def test_what_is_given_may_be_shorter() -> None:
    class Given(MadeUp):
        def begin(self, states: torch.Tensor) -> torch.Tensor:
            return states

        def step(self, index: int, states: torch.Tensor, token_ids: torch.Tensor):
            return states, states[:, index]

    rules = RULES["reduced"]
    graphs = StepGraphs(Given(), Rerun(), torch.zeros(3, NUM_IDS))
    graphs.prepare(2, work_of(rules, [0.0], 3))
    logits = torch.randn(2, 3, NUM_IDS)
    chains = graphs.draft(LAST[:2], [logits[0], logits[1, :2]], work_of(rules, [0.0, 0.0], 3))
    best = torch.from_numpy(NAMES)[logits.argmax(-1)]
    assert torch.equal(chains.token_ids[0], best[0])
    assert torch.equal(chains.token_ids[1, :2], best[1, :2])


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [(Rerun(failure="not permitted"), "not permitted"), (Rerun(spoil=2.0), "a replay chose other tokens")],
)
def test_a_device_that_cannot_record(recorder: Rerun, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    graphs, states = made(RULES["reduced"], recorder), torch.randn(3, WIDTH)
    assert "drafts are not captured in graphs" in caplog.text
    assert reason in caplog.text
    work = work_of(RULES["reduced"], TEMPERATURES, 2)
    expected, _ = by_hand(states, TEMPERATURES, 2, RULES["reduced"])
    assert torch.equal(graphs.draft(LAST, [*states], work).token_ids, expected)
    assert (graphs.num_recordings, graphs.num_plain) == (0, 1)
