"""Recorded drafts whose steps need no cache: what they choose, padding, and how they fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from kernelchains import chosen_by_hand
from speccheck.recorder import Rerun

from specdec.engine.sequence import Sequence
from specdec.engine.speculation.plugin_view import EngineDraws
from specdec.interfaces import PassMemory, VerdictOffsets
from specdec.interfaces.draws import NoiseKeys
from specdec.logits.pipeline import apply_temperature_and_truncation
from specdec.sampling_params import SamplingParams
from specdec_kernels.cuda.graphs import StepGraphs
from specdec_kernels.cuda.graphs.static_steps import StaticSteps
from specdec_runtime.interfaces import ChainRules, ChainWork

NUM_IDS, WIDTH, MOST_STEPS = 24, 6, 4
NAMES = np.arange(NUM_IDS) * 3 + 1
TEMPERATURES = [0.7, 0.0, 1.3]
LAST = np.array([5, 0, 9])
PLACES = VerdictOffsets(40, 46, MOST_STEPS + 1, 90)
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
    nowhere = [0] * len(temperatures)
    return ChainWork(nowhere, nowhere, num_steps, temperatures, keys, rules)


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
    graphs = StepGraphs(MadeUp(), recorder or Rerun(), torch.zeros(WIDTH), PassMemory(torch.device("cpu")))
    graphs.prepare(3, work_of(rules, [0.0], MOST_STEPS))
    return graphs


@pytest.mark.parametrize("num_steps", [1, MOST_STEPS, MOST_STEPS + 2])
@pytest.mark.parametrize("temperatures", [TEMPERATURES, [0.0, 0.0], [0.9]])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.sampled(8, slow=10)
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
        work = ChainWork([0], [0], 1, [5.0], keys, RULES["reduced"], [(1, 1.0, 0.0)])
        assert torch.equal(graphs.draft(LAST[:1], [*states], work).token_ids[:, :1], greedy)


def test_siblings_are_the_next_best_and_the_first_is_continued() -> None:
    rules = ChainRules(NUM_IDS, NAMES, siblings=3)
    states = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    tree = made(rules).draft(LAST, [*states], work_of(rules, TEMPERATURES, MOST_STEPS))
    chain = made(RULES["reduced"]).draft(LAST, [*states], work_of(RULES["reduced"], TEMPERATURES, MOST_STEPS))
    assert torch.equal(tree.token_ids[:, ::3], chain.token_ids)
    assert tree.parents.tolist() == [[-1, -1, -1, 0, 0, 0, 3, 3, 3, 6, 6, 6]] * 3
    steps = MadeUp()
    _, logits = steps.step(0, steps.begin(states), torch.from_numpy(LAST))
    best = torch.from_numpy(NAMES)[logits[1, :NUM_IDS].topk(3).indices]
    assert torch.equal(tree.token_ids[1, :3], best)  # the greedy row
    noise = EngineDraws(sequences_of(TEMPERATURES)).coupled_noise([0, 2], 1, int(NAMES[-1]) + 1)
    scores = logits[[0, 2], :NUM_IDS] / torch.tensor([[0.7], [1.3]]) + noise[:, NAMES]
    assert torch.equal(tree.token_ids[[0, 2], :3], torch.from_numpy(NAMES)[scores.topk(3).indices])


def test_what_follows_a_verdict_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns 2 and 3 the host is asked before it has the verdict."""
    graphs, rules = made(RULES["greedy or coupled"]), RULES["greedy or coupled"]
    memory, sends, send = graphs._pass_memory, list[StaticSteps](), StaticSteps.send
    memory.states = torch.zeros(1, 64, WIDTH)

    def sending(static: StaticSteps, *args: object) -> None:
        sends.append(static)
        send(static, *args)

    monkeypatch.setattr(StaticSteps, "send", sending)
    num_tokens, last, verdict = np.array([7, 8, 9]), LAST, None
    states, begun = [*torch.randn(3, WIDTH)], None
    for turn, counts in enumerate([[1, 0, 4], [0, 2, 1], [3, 3, 3], [0, 0, 0], [1, 1, 1], [2, 0, 0]]):
        draw = torch.Generator().manual_seed(turn)
        rows = torch.randn(64, WIDTH, generator=draw)
        keys = NoiseKeys(np.array([3, 4, 5]), np.zeros(3, np.int64), num_tokens.copy())
        work = ChainWork([0] * 3, num_tokens.tolist(), MOST_STEPS, TEMPERATURES, keys, rules)
        work = replace(work, depths=[MOST_STEPS] * 3, ends=[200] * 3, verdict=verdict)
        got = graphs.draft(last, states, work).token_ids if begun is None else begun
        wanted = made(rules).draft(last, states, replace(work, verdict=None))
        assert torch.equal(got, wanted.token_ids)
        emitted = torch.randint(NUM_IDS, (3, MOST_STEPS + 1), generator=draw)
        memory.numbers[PLACES.num_accepted :][:3] = torch.tensor(counts)
        memory.numbers[PLACES.token_ids :][: emitted.numel()] = emitted.flatten()
        memory.numbers[PLACES.row_starts :][:3] = starts = torch.tensor([0, 10, 20])
        memory.states[0] = rows
        verdict, begun = PLACES, None
        if turn in (1, 2):
            behind = replace(work, verdict=PLACES, is_unread=True)
            begun = graphs.draft(LAST[:0], [], behind).token_ids.clone()
        states = [rows[start + count] for start, count in zip(starts.tolist(), counts, strict=True)]
        last = emitted[range(3), counts].numpy()
        num_tokens = num_tokens + counts + 1
    assert graphs._last is not None
    # Until it is known where a verdict is, and where the host is first again.
    assert len([static for static in sends if static is graphs._last[0]]) == 3
    assert graphs.num_replays == 6


def test_what_is_given_may_be_shorter() -> None:
    class Given(MadeUp):
        def begin(self, states: torch.Tensor) -> torch.Tensor:
            return states

        def step(self, index: int, states: torch.Tensor, token_ids: torch.Tensor):
            return states, states[:, index]

    rules = RULES["reduced"]
    graphs = StepGraphs(Given(), Rerun(), torch.zeros(3, NUM_IDS), PassMemory(torch.device("cpu")))
    graphs.prepare(2, work_of(rules, [0.0], 3))
    logits = torch.randn(2, 3, NUM_IDS)
    chains = graphs.draft(LAST[:2], [logits[0], logits[1, :2]], work_of(rules, [0.0, 0.0], 3))
    best = torch.from_numpy(NAMES)[logits.argmax(-1)]
    assert torch.equal(chains.token_ids[0], best[0])
    assert torch.equal(chains.token_ids[1, :2], best[1, :2])


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [(Rerun(failure="not permitted"), "not permitted"), (Rerun(spoil=2.0), "a replay gave other tokens")],
)
def test_a_device_that_cannot_record(recorder: Rerun, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    graphs, states = made(RULES["reduced"], recorder), torch.randn(3, WIDTH)
    assert "drafts are not captured in graphs" in caplog.text
    assert reason in caplog.text
    work = work_of(RULES["reduced"], TEMPERATURES, 2)
    expected, _ = by_hand(states, TEMPERATURES, 2, RULES["reduced"])
    assert torch.equal(graphs.draft(LAST, [*states], work).token_ids, expected)
    assert (graphs.num_recordings, graphs.num_plain) == (0, 1)
