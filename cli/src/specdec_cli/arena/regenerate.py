"""Checks of a submission with its target at hand: hashes of files, and rows generated again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specdec import LLM, ConfigError, EngineOptions, SamplingParams
from specdec.config import locate, parse_speculative_config, target_facts
from specdec_cli import quiet_libraries
from specdec_cli.arena.local import drafters_of, greedy_rows, stamp_engine, stamp_row
from specdec_cli.arena.row import Row, StampRow, sha256_of
from specdec_cli.arena.stamp import answer_of
from specdec_cli.arena.submission import PLAIN, Files, Questions, Submission
from specdec_cli.audit.answer import Answer
from specdec_cli.audit.divergence import LEAST_TOLERANCE, MOST_TOLERANCE, Kind, first_divergence
from specdec_cli.bench.suites import load_suite
from specdec_cli.bench.suites.chat import Chat
from specdec_runtime.loading import LoadedTarget, load_target


def check_again(
    submission: Submission, model: str, file: Path | None, count: int, seed: int | None
) -> tuple[list[str], str]:
    """Compare files with their hashes, and generate some rows again.

    Args:
        submission: whose files hold.
        model: the target at hand, as for `LLM`.
        file: the suite's questions; without, only rows of the stamp are generated again.
        count: rows of each kind, drawn at random.
        seed: of the choice; None for another one each time.

    Returns:
        What does not hold, a sentence each, and what was looked at.

    Raises:
        ConfigError: if the target or the questions cannot be read.
    """
    quiet_libraries()
    dtype = submission.facts.dtype
    options = locate(EngineOptions(model=model, dtype="auto" if " " in dtype else dtype))
    found = list(_hashes(submission, str(options.model)))
    if found:
        return found, ""
    choice, target = random.Random(seed), load_target(options)
    rows = [row for row in submission.rows if row.tokens is not None and _is_repeatable(submission, row)]
    if file is None and submission.facts.suite.name != "humaneval":
        rows = []
    chosen = choice.sample(rows, min(count, len(rows)))
    stamp = [row for row in submission.stamp_rows if not row.temperature and not _url_of(submission, row)]
    chosen_stamp = choice.sample(stamp, min(count, len(stamp)))
    found = [*_rows(submission, target, file, chosen), *_stamp(target, options, chosen_stamp)]
    said = (
        f"numbers, hashes and times hold; {len(chosen)} of {len(submission.rows)} rows and {len(chosen_stamp)} of {len(stamp)} "
        "greedy rows of the stamp, generated again, are the target's"
    )
    return found, said


def _hashes(submission: Submission, path: str) -> Iterator[str]:
    facts = submission.facts
    here = Files.of(facts.target.name, path)
    if facts.target.sha256 and here.sha256 != facts.target.sha256:
        yield f"the target at hand ({path}) is not the one that was measured: the hashes of its files differ"
        return
    known = target_facts(path)
    for contestant in facts.contestants:
        if contestant.config is None:
            continue
        resolved = parse_speculative_config(contestant.config, target=known)
        assert resolved is not None
        told, ours = (
            [files.sha256 for files in each] for each in (contestant.drafters, drafters_of(resolved))
        )
        if told != ours:
            yield f"the drafter of {contestant.name!r} here is not the one of the submission: the hashes of its files differ"


def _is_repeatable(submission: Submission, row: Row) -> bool:
    """Return whether plain decoding here must give the row's tokens again."""
    facts = submission.facts
    contestant = next(one for one in facts.contestants if one.name == row.contestant)
    if contestant.acceptance == "synthetic":
        return False
    sampler = (contestant.config or {}).get("rejection_sample_method", "strict")
    is_seeded = contestant.url is None and facts.dtype == "float32" and sampler == "strict"
    return not facts.temperature or is_seeded


def _rows(
    submission: Submission, target: LoadedTarget, file: Path | None, chosen: Sequence[Row]
) -> Iterator[str]:
    if not chosen:
        return
    facts = submission.facts
    suite = load_suite(facts.suite.name, file)
    if Questions.sha256_of(file) != facts.suite.sha256:
        yield f"{file or facts.suite.name} does not hold the questions that were asked: its hash differs"
        return
    if target.tokenizer is None:
        raise ConfigError("the target has no tokenizer, so its prompts cannot be made again")
    answers = {(r.contestant, r.batch_size, r.question, r.turn): r for r in submission.rows}
    prompts, params = [], []
    for row in chosen:
        question = suite.questions[row.question]
        earlier = [answers[row.contestant, row.batch_size, row.question, turn] for turn in range(row.turn)]
        texts = [
            one.text or str(target.tokenizer.decode(one.tokens or [], skip_special_tokens=True))
            for one in earlier
        ]
        prompt = Chat(question, target.tokenizer, target.max_model_len).prompt(texts)
        said: object = list(prompt or ())
        if _url_of(submission, row) is not None:
            said = [
                {"role": role, "content": text}
                for user, answer in zip(question.turns, [*texts, None], strict=False)
                for role, text in (("user", user), ("assistant", answer))
                if text is not None
            ]
        if row.category != question.category or sha256_of(said) != row.prompt_sha256:
            yield f"{_named(row)}: that is not the question, or not the prompt, that its hash is of"
            return
        prompts.append(list(prompt or ()))
        params.append(
            SamplingParams(
                temperature=facts.temperature,
                max_tokens=facts.max_tokens,
                seed=facts.seed + question.number,
                logprobs=2,
            )
        )
    llm = LLM(target, max_num_seqs=1, max_model_len=target.max_model_len, enable_prefix_caching=False)
    for row, output in zip(chosen, llm.generate(prompts, params, use_tqdm=False), strict=True):
        expected = stamp_row(PLAIN, 0, 0.0, output)
        is_exact = str(target.dtype) == "torch.float32" and _url_of(submission, row) is None
        tolerance = LEAST_TOLERANCE if is_exact else MOST_TOLERANCE
        yield from _compared(
            _named(row), replace(answer_of(expected), has_ended=False), _answer(row.tokens or []), tolerance
        )


def _stamp(target: LoadedTarget, options: EngineOptions, chosen: Sequence[StampRow]) -> Iterator[str]:
    if not chosen:
        return
    if str(target.dtype) != "torch.float32":
        target = load_target(replace(options, dtype="float32"))
    places = sorted({row.prompt for row in chosen})
    expected = {row.prompt: row for row in greedy_rows(stamp_engine(target, None), PLAIN, places)}
    for row in chosen:
        what = f"the stamp of {row.contestant!r}, prompt {row.prompt}"
        if row.prompt_sha256 != expected[row.prompt].prompt_sha256:
            yield f"{what}: that is not the prompt that its hash is of"
            continue
        yield from _compared(what, answer_of(expected[row.prompt]), answer_of(row), LEAST_TOLERANCE)


def _compared(what: str, expected: Answer, got: Answer, tolerance: float) -> Iterator[str]:
    found = first_divergence(0, expected, got)
    if found is not None and found.kind(tolerance) is not Kind.NEAR_TIE:
        yield (
            f"{what}: token {found.place + 1} of its text is {found.got}, and the target's is {found.expected}, by more than "
            "rounding"
        )


def _answer(tokens: Sequence[int]) -> Answer:
    return Answer("", tuple(tokens), None, has_ended=False)


def _url_of(submission: Submission, row: Row | StampRow) -> str | None:
    return next(one.url for one in submission.facts.contestants if one.name == row.contestant)


def _named(row: Row) -> str:
    return f"{row.contestant!r}, batch size {row.batch_size}, question {row.question}, turn {row.turn + 1}"
