"""Gathers the answers that a head is trained on: answers from files and new answers of the target."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from specdec_cli.bench.prompt_file import ChatPrompt
from specdec_runtime.loading import LoadedTarget
from specdec_train.answers.collect import Collected, Collector, CollectSettings
from specdec_train.answers.engine import AnswerEngine
from specdec_train.answers.file import AnswersFile, read_answers
from specdec_train.answers.record import Answered
from specdec_train.answers.state_recorder import RecordedText, StateRecorder
from specdec_train.answers.template import ChatTemplate
from specdec_train.heads.budget import Budget
from specdec_train.heads.kept_states import free_bytes
from specdec_train.heads.options import TrainOptions
from specdec_train.interruption import Interrupted, IsInterrupted

logger = logging.getLogger("specdec")


def gather(
    options: TrainOptions,
    questions: Sequence[ChatPrompt],
    seq_len: int,
    target: LoadedTarget,
    budget: Budget,
    is_interrupted: IsInterrupted,
    aux_layer_ids: Sequence[int] | None = None,
) -> Collected:
    """Return all answers to train on.

    Args:
        options: the options of the command.
        questions: questions from the prompt files.
        seq_len: maximum number of tokens of a conversation in training.
        target: answers questions and writes prompts.
        budget: sets the deadline.
        is_interrupted: called after every step of the engine; True stops the run.
        aux_layer_ids: layers whose inputs are recorded beside the final states while answers are generated; None to
            record no states.

    Raises:
        ValueError: if a file cannot be read or written, or holds answers of another target.
        Interrupted: if a stop was requested; finished answers are kept.
    """
    earlier = [one for path in _files(options) for one in read_answers(path)]
    _check_ids(earlier, target, options)
    if not questions and not options.num_written:
        return Collected(earlier)
    assert target.tokenizer is not None
    max_model_len = min(target.max_model_len, seq_len + options.max_tokens)
    settings = CollectSettings(
        max_tokens=options.max_tokens,
        max_prompt=min(seq_len // 2, max_model_len - options.max_tokens),
        num_written=options.num_written,
        uses_given=options.uses_given,
    )
    if settings.max_prompt < 1:
        raise ValueError(
            f"--max-tokens {options.max_tokens} leaves no room for prompts in the target's {target.max_model_len} positions"
        )
    with AnswersFile(options.answers_file) as file:
        collector = Collector(settings, ChatTemplate(target.tokenizer), questions, earlier, file)
        if budget.answer_deadline() > time.monotonic() and not is_interrupted():
            recorder = None
            if aux_layer_ids is not None:
                recorder = {"aux_layer_ids": list(aux_layer_ids), "most_bytes": free_bytes()}
            engine = AnswerEngine(target, max_model_len, recorder)
            started = time.monotonic()  # compilation in the engine does not count against answers
            try:
                collector.run(engine, budget.answer_deadline(), is_interrupted)
                if engine.recorder is not None:
                    collector.collected.recorded = _recorded(engine.recorder)
            finally:
                engine.close()
                budget.note_answers(time.monotonic() - started)
    if is_interrupted():
        raise Interrupted(
            f"stopped with {len(collector.collected.answers)} answers, kept in {options.answers_file}"
        )
    return collector.collected


def _recorded(recorder: StateRecorder) -> list[RecordedText]:
    """Return what was recorded; warns of what was not."""
    if recorder.num_left_out:
        logger.warning(
            "memory is too small for the target's states of %d of %d answers, so the target runs on these in every epoch",
            recorder.num_left_out, recorder.num_left_out + len(recorder.texts),
        )  # fmt: skip
    return recorder.texts


def _files(options: TrainOptions) -> list[Path]:
    own = options.answers_file
    return [*options.answers, *([own] if own.exists() and own not in options.answers else [])]


def _check_ids(answers: Sequence[Answered], target: LoadedTarget, options: TrainOptions) -> None:
    """Refuse answers of a target with another vocabulary."""
    size = int(target.model.config.get_text_config().vocab_size)
    highest = max((max(one.ids) for one in answers), default=0)
    if highest >= size:
        raise ValueError(
            f"{', '.join(map(str, _files(options)))}: holds token id {highest}, and {options.target} has {size} ids: these are "
            "another model's answers"
        )
