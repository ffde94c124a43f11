"""Collects answers of a target to prompts from files and to prompts that it writes itself."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console

from specdec import RequestOutput, SamplingParams
from specdec_cli.bench.prompt_file import ChatPrompt
from specdec_train.answers.engine import AnswerEngine, Asked
from specdec_train.answers.file import AnswersFile
from specdec_train.answers.prompts import source_of
from specdec_train.answers.record import Answered, digest_of
from specdec_train.answers.state_recorder import RecordedText
from specdec_train.answers.template import ChatTemplate, UserTurn
from specdec_train.interruption import IsInterrupted

_TEMPERATURES = (0.0, 0.0, 0.8)
"""Temperatures of answers, selected by the prompt's hash: heads are trained on greedy and sampled text."""
_WRITTEN_TOKENS = 160
"""Maximum number of tokens in a prompt written by the target."""
_SHORTEST_WRITTEN = 8
"""Minimum number of characters in a prompt written by the target."""
_TRIES = 4
"""Maximum number of prompts started for each one wanted: some are truncated, and some are duplicates."""
_REPORT_SECONDS = 30.0


@dataclass
class Collected:
    """The collected answers."""

    answers: list[Answered]
    """Earlier answers come first."""
    recorded: list[RecordedText] = field(default_factory=list)
    """The target's states of new answers, as far as they were recorded."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of skipped prompts, by reason."""


@dataclass(frozen=True)
class CollectSettings:
    """How answers are made.

    Args:
        max_tokens: maximum number of tokens of an answer.
        max_prompt: maximum number of tokens of a prompt; longer ones are skipped.
        num_written: number of prompts that the target writes itself.
        uses_given: whether answers in the files are used as they are.
        seed: seed of all sampling.
    """

    max_tokens: int
    max_prompt: int
    num_written: int = 0
    uses_given: bool = False
    seed: int = 1


class Collector:
    """Feeds an engine with questions, their follow-up user turns, and prompts for the target to write.

    Args:
        settings: how answers are made.
        template: the target's chat template.
        questions: questions from files.
        earlier: existing answers, for example of an interrupted run; their prompts are not asked again.
        file: receives each answer when it is finished.
    """

    def __init__(
        self,
        settings: CollectSettings,
        template: ChatTemplate,
        questions: Sequence[ChatPrompt],
        earlier: Sequence[Answered],
        file: AnswersFile,
    ) -> None:
        self._settings, self._template, self._file = settings, template, file
        self._done = {digest_of(one.prompt): one for one in earlier}
        self._written = {one.source for one in earlier if one.is_written}
        self._num_begun = 2 * len(self._written)  # an estimate of where an interrupted run stopped
        self._turn: UserTurn | None = template.user_turn() if settings.num_written else None
        order = list(questions)
        random.Random(settings.seed).shuffle(order)
        self._waiting = deque((question, False) for question in order)
        self.collected = Collected(list(earlier))

    def run(self, engine: AnswerEngine, deadline: float, is_interrupted: IsInterrupted) -> Collected:
        """Answer until everything is answered, the deadline has passed, or a stop was requested.

        Raises:
            ValueError: if answers cannot be written.
        """
        started = reported = time.monotonic()
        console = Console(file=sys.stderr, soft_wrap=True)

        def on_step() -> None:
            nonlocal reported
            now = time.monotonic()
            if now - reported >= _REPORT_SECONDS:
                reported = now
                left = f", {max(deadline - now, 0.0):.0f} s left" if deadline < float("inf") else ""
                text = (
                    f"answers {len(self.collected.answers)}, {len(self._waiting)} prompts waiting, "
                    f"{engine.num_tokens / (now - started):.0f} tokens/s{left}"
                )
                console.print(text, markup=False, highlight=False)

        for asked, output in engine.run(self._next, deadline, is_interrupted, on_step):
            if asked.question is None:
                self._take_written(output)
            else:
                self._take_answer(asked, asked.question, output)
        return self.collected

    def _next(self) -> Asked | None:
        """Return the next unanswered question, or else a request for the target to write a prompt."""
        while self._waiting:
            question, is_written = self._waiting.popleft()
            asked = self._asked(question, is_written)
            if asked is not None:
                return asked
        wanted = self._settings.num_written
        if len(self._written) >= wanted or self._num_begun >= _TRIES * wanted:
            return None
        self._num_begun += 1
        assert self._turn is not None
        end_id, end_text = self._turn.end_id, self._turn.end_text
        params = SamplingParams(
            temperature=1.0,
            top_p=0.95,
            seed=self._settings.seed * 1_000_003 + self._num_begun,
            max_tokens=_WRITTEN_TOKENS,
            speculative=False,  # so that its states are not recorded
            stop_token_ids=None if end_id is None else [end_id],
            stop=end_text if end_id is None else None,
        )
        return Asked(self._turn.opening, params, None)

    def _asked(self, question: ChatPrompt, is_written: bool) -> Asked | None:
        """Return a question as a request, or None if it is already answered or skipped."""
        if self._settings.uses_given and question.given is not None:
            self._take_given(question)
            return None
        ids = self._template.prompt_ids(question.messages)
        if len(ids) > self._settings.max_prompt:
            self.collected.left_out["too long"] += 1
            return None
        digest = digest_of(ids)
        known = self._done.get(digest)
        if known is not None:
            self._ask_later(question, known)
            return None
        number = int(digest[:8], 16)
        params = SamplingParams(
            temperature=_TEMPERATURES[number % len(_TEMPERATURES)],
            seed=self._settings.seed * 7919 + number,
            max_tokens=self._settings.max_tokens,
        )
        return Asked(ids, params, question, is_written)

    def _take_given(self, question: ChatPrompt) -> None:
        found = self._template.answered_ids(question)
        if found is None:
            self.collected.left_out["the template rewrites them"] += 1
        elif found[1] > self._settings.max_prompt:
            self.collected.left_out["too long"] += 1
        else:
            ids = found[0][: found[1] + self._settings.max_tokens]
            if digest_of(ids[: found[1]]) not in self._done:
                self._keep(Answered(ids, found[1], 0.0, source_of(question)))

    def _take_answer(self, asked: Asked, question: ChatPrompt, output: RequestOutput) -> None:
        ids = [*asked.prompt, *output.outputs[0].token_ids]
        answered = Answered(
            ids, len(asked.prompt), asked.params.temperature, source_of(question), asked.is_written
        )
        self._keep(answered)
        self._ask_later(question, answered)

    def _ask_later(self, question: ChatPrompt, answered: Answered) -> None:
        """Queue the user's next turn after an answer."""
        if question.later:
            text = self._template.tokenizer.decode(list(answered.answer), skip_special_tokens=True)
            answer = {"role": "assistant", "content": str(text).strip()}
            turn = {"role": "user", "content": question.later[0]}
            following = ChatPrompt((*question.messages, answer, turn), question.later[1:])
            self._waiting.appendleft((following, False))

    def _take_written(self, output: RequestOutput) -> None:
        text = output.outputs[0].text.strip()
        if output.outputs[0].finish_reason != "stop" or len(text) < _SHORTEST_WRITTEN:
            return
        question = ChatPrompt(({"role": "user", "content": text},))
        if source_of(question) not in self._written and len(self._written) < self._settings.num_written:
            self._written.add(source_of(question))
            self._waiting.append((question, True))

    def _keep(self, answered: Answered) -> None:
        self._file.append([answered])
        self.collected.answers.append(answered)
        self._done[digest_of(answered.prompt)] = answered
