"""Contenders on a suite: conversations, rows by task and category, interruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from speccheck.proposers import Scripted
from transformers import PreTrainedTokenizerBase

from specdec_cli.bench import BASELINE, Contender, Session, Workload
from specdec_cli.bench.suites import OVERALL, Suite, SuiteComparison, chats_of, even_sample, grouped
from specdec_runtime.loading.target import LoadedTarget

pytestmark = pytest.mark.slow

SCRIPTED = "speccheck.proposers.Scripted"
GUESSING = Contender("guessing", SCRIPTED, {"method": SCRIPTED, "num_speculative_tokens": 2})
MAX_TOKENS = 6
Make = Callable[..., SuiteComparison]


@pytest.fixture
def make(target: LoadedTarget, chat_tokenizer: PreTrainedTokenizerBase, small_suite: Suite) -> Make:
    """Makes a comparison on the small suite."""

    def comparison(batch_size: int = 1, on_done: Callable[[], None] = lambda: None) -> SuiteComparison:
        asked = even_sample(small_suite.questions)
        chats = chats_of(asked, chat_tokenizer, target.max_model_len, MAX_TOKENS)
        groups = grouped(small_suite, asked, batch_size)
        prompts = tuple(
            chats.by_number[q.number].prompt([]) or () for group in groups for q in group.questions
        )
        workload = Workload(prompts, MAX_TOKENS, batch_size, temperature=0.8, seed=3)
        contenders = [BASELINE, GUESSING]
        return SuiteComparison(target, workload, groups, chats.by_number, contenders, on_done)

    return comparison


@pytest.fixture
def done(make: Make) -> SuiteComparison:
    comparison = make()
    comparison.run_round()
    return comparison


def test_turns_of_a_conversation_follow_the_contenders_own_answers(
    done: SuiteComparison, chat_tokenizer: PreTrainedTokenizerBase
) -> None:
    first_group = done.rounds[0][0]
    for turn in first_group:
        first, second = turn.outputs
        answer = first.outputs[0].text
        assert chat_tokenizer.decode(first.prompt_token_ids) == "<user>write of a dog\n<assistant>"
        assert (
            chat_tokenizer.decode(second.prompt_token_ids)
            == f"<user>write of a dog\n<assistant>{answer}\n<user>now of a cat\n<assistant>"
        )
    assert [len(turns[0].outputs) for turns in done.rounds[0]] == [2, 1, 1, 1, 1]


def test_rows_are_overall_then_by_task(done: SuiteComparison) -> None:
    rows = done.rows()
    assert [(row["category"], row["name"], row["num_prompts"]) for row in rows] == [
        (OVERALL, "baseline", 5),
        (OVERALL, "guessing", 5),
        ("writing", "baseline", 3),
        ("writing", "guessing", 3),
        ("sums", "baseline", 2),
        ("sums", "guessing", 2),
    ]
    assert [(row["category"], row["num_prompts"]) for row in done.category_rows()[::2]] == [
        ("essays", 2),
        ("poems", 1),
        ("sums", 2),
    ]
    for row in rows:
        assert row["identical_to_baseline"] is True
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["eta"] == pytest.approx(row["speedup"] / row["mean_acceptance_length"])
    assert {row["speedup"] for row in rows[::2]} == {1.0}


def test_parts_add_up_to_the_whole(done: SuiteComparison) -> None:
    rows = [row for row in done.rows() if row["name"] == "guessing"]
    for key in ("output_tokens", "wall_s", "num_drafts"):
        assert rows[0][key] == pytest.approx(rows[1][key] + rows[2][key])
    assert rows[0]["drafted_share"] > 0.3
    assert 1.0 <= rows[0]["tokens_per_step"] <= 3.0


def test_a_category_with_one_question_has_no_bounds(done: SuiteComparison) -> None:
    (row,) = (row for row in done.category_rows() if (row["category"], row["name"]) == ("poems", "guessing"))
    assert row["speedup_low"] == row["speedup"] == row["speedup_high"]


def test_batches_hold_questions_of_one_task_and_give_the_same_texts(
    make: Make, done: SuiteComparison
) -> None:
    batched = make(batch_size=2)
    batched.run_round()
    assert [row["category"] for row in batched.rows()[::2]] == [OVERALL, "writing", "sums"]
    assert batched.category_rows() == []
    alone = {tuple(o.prompt_token_ids): o.outputs[0].token_ids for g in done.rounds[0] for o in g[0].outputs}
    for group in batched.rounds[0]:
        for output in group[0].outputs:
            assert alone[tuple(output.prompt_token_ids)] == output.outputs[0].token_ids


def test_contenders_change_places_after_each_question(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[bool] = []
    converse = Session.converse

    def spy(self: Session, conversations: Any, on_done: Any) -> Any:
        order.append(self._built.speculation is None)
        return converse(self, conversations, on_done)

    monkeypatch.setattr(Session, "converse", spy)
    calls: list[int] = []
    comparison = make(on_done=lambda: calls.append(1))
    comparison.run_round()
    assert order == [True, False, False, True] * 2 + [True, False]
    assert len(calls) == 10


def test_an_engine_lives_for_one_round(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Scripted] = []
    init = Scripted.__init__
    monkeypatch.setattr(Scripted, "__init__", lambda self, *args: (made.append(self), init(self, *args))[1])
    comparison = make()
    comparison.run_round()
    comparison.run_round()
    assert len(made) == 2
    assert comparison.rows()[0]["output_tokens"] == sum(turns[0].num_tokens for turns in comparison.rounds[0])
    assert comparison.has_bounds_by_rounds is False


class Interrupts:
    """Raises what Ctrl-C does after so many calls."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_first_round_keeps_what_everybody_has_answered(make: Make) -> None:
    comparison = make(on_done=Interrupts(after=7))
    with pytest.raises(KeyboardInterrupt):
        comparison.run_round()
    assert comparison.num_questions == 3
    assert [(row["category"], row["num_prompts"]) for row in comparison.rows()[::2]] == [
        (OVERALL, 3),
        ("writing", 2),
        ("sums", 1),
    ]


def test_of_an_interrupted_later_round_nothing_stays(make: Make) -> None:
    comparison = make(on_done=Interrupts(after=13))
    comparison.run_round()
    with pytest.raises(KeyboardInterrupt):
        comparison.run_round()
    assert (len(comparison.rounds), comparison.num_questions) == (1, 5)


def test_interrupted_before_the_first_answer_there_is_nothing(make: Make) -> None:
    comparison = make(on_done=Interrupts(after=1))
    with pytest.raises(KeyboardInterrupt):
        comparison.run_round()
    assert (comparison.rounds, comparison.num_questions) == ([], 0)
