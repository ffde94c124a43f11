"""Contestants that run here, on one target, in turns with plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec import LLM, EngineOptions, RequestOutput, SamplingParams
from specdec.config import ResolvedSpeculation, parse_speculative_config, target_facts
from specdec_cli.arena.plan import SAMPLE_TOKENS, SAMPLED_PROMPTS, STAMP_TOKENS, STAMP_WIDTH, Plan
from specdec_cli.arena.row import Row, StampRow, Symbol, sha256_of
from specdec_cli.arena.submission import PLAIN, Contestant, Files, is_synthetic
from specdec_cli.audit.answer import END
from specdec_cli.audit.prompts import BUILT_IN
from specdec_cli.bench import BASELINE, Contender, Turn, Workload
from specdec_cli.bench.suites import Chats, SuiteComparison, chats_of, grouped
from specdec_cli.bench.suites.group import Group
from specdec_cli.bench.task import Options, loaded
from specdec_runtime.loading import LoadedTarget, load_target

Tick = Callable[[], None]
SEED_STEP = 10_000
"""Between the seeds of two contestants' samples, which must be independent."""


@dataclass(frozen=True)
class Local:
    """The target, the contestants that run on it, and the questions that fit it.

    Args:
        plan: of the run.
        name: the target's name, as given.
        target: the loaded target.
        contenders: plain decoding first.
        chats: the questions as conversations.
    """

    plan: Plan
    name: str
    target: LoadedTarget
    contenders: Sequence[Contender]
    chats: Chats

    @staticmethod
    def of(plan: Plan) -> Local:
        """Load the target and check the configurations.

        Raises:
            ConfigError: for a model, configuration or question that cannot be used.
        """
        name, target, contenders = loaded(
            Options(
                model=plan.model,
                configs=list(plan.speculative_config),
                max_tokens=plan.max_tokens,
                batch_size=1,
                temperature=plan.temperature,
                seed=plan.seed,
                dtype=plan.dtype,
                max_model_len=plan.max_model_len,
                is_deterministic=False,
                is_prefix_cached=False,
            )
        )
        chats = chats_of(plan.questions, target.tokenizer, target.max_model_len, plan.max_tokens)
        named = [replace(BASELINE, name=PLAIN), *contenders[1:]]
        return Local(plan, name, target, named, chats)

    def contestants(self) -> list[Contestant]:
        """Return the contestants with the hashes of their drafters."""
        facts = target_facts(self.target.path) if self.target.path else None
        found = [Contestant(name=PLAIN, acceptance="none")]
        for contender in self.contenders[1:]:
            resolved = parse_speculative_config(contender.config, target=facts)
            assert resolved is not None
            found.append(
                Contestant(
                    name=contender.name,
                    acceptance="synthetic" if is_synthetic(contender.config) else "real",
                    config=contender.config,
                    drafters=drafters_of(resolved),
                )
            )
        return found

    def rows(self, tick: Tick) -> Iterator[Row]:
        """Ask everybody every question, at each batch size; `tick` is called after each question and contestant."""
        asked = [question for question in self.plan.questions if question.number in self.chats.by_number]
        prompts = [self.chats.by_number[question.number].prompt([]) for question in asked]
        zero = None
        for size in self.plan.batch_size:
            groups = grouped(self.plan.questions_of_suite, asked, size)
            workload = Workload(
                tuple(prompt for prompt in prompts if prompt is not None),
                max_tokens=self.plan.max_tokens,
                batch_size=size,
                temperature=self.plan.temperature,
                seed=self.plan.seed,
                is_recorded=True,
            )
            target = replace(self.target, max_model_len=self.chats.max_model_len)
            comparison = SuiteComparison(
                target, workload, groups, self.chats.by_number, self.contenders, tick
            )
            comparison.run_round()
            turns = comparison.rounds[0]
            if zero is None:
                zero = min(moment for group in turns for turn in group for moment in turn.started)
            for number, (group, taken) in enumerate(zip(groups, turns, strict=True)):
                for contender, turn in zip(self.contenders, taken, strict=True):
                    yield from rows_of(contender.name, size, number, group, turn, zero)

    def stamp_rows(self, tick: Tick) -> Iterator[StampRow]:
        """Ask everybody the prompts of the stamp, in float32."""
        target = self.target
        if str(target.dtype) != "torch.float32":
            target = load_target(EngineOptions(model=self.name, dtype="float32"))
        for index, contender in enumerate(self.contenders):
            if not is_synthetic(contender.config):
                llm = stamp_engine(target, contender.config)
                yield from greedy_rows(llm, contender.name, range(len(BUILT_IN)))
                if self.plan.stamp_samples:
                    yield from self._samples(llm, contender.name, self.plan.seed + SEED_STEP * index)
            tick()

    def _samples(self, llm: LLM, name: str, seed: int) -> Iterator[StampRow]:
        params = [
            SamplingParams(
                temperature=self.plan.stamp_temperature,
                n=self.plan.stamp_samples,
                max_tokens=SAMPLE_TOKENS,
                seed=seed + place,
            )
            for place in range(SAMPLED_PROMPTS)
        ]
        outputs = llm.generate(list(BUILT_IN[:SAMPLED_PROMPTS]), params, use_tqdm=False)
        for place, output in enumerate(outputs):
            yield stamp_row(name, place, self.plan.stamp_temperature, output)


def stamp_engine(target: LoadedTarget, config: Any) -> LLM:
    """Return an engine for the prompts of the stamp, which drafts also where that does not pay."""
    drafting: Any = None if config is None else {**config, "adaptive": False}
    return LLM(
        target,
        speculative_config=drafting,
        max_num_seqs=STAMP_WIDTH,
        max_model_len=target.max_model_len,
        enable_prefix_caching=False,
    )


def greedy_rows(llm: LLM, name: str, places: Sequence[int]) -> Iterator[StampRow]:
    """Return answers at temperature 0 to prompts of the stamp; those of plain decoding have log probabilities."""
    params = SamplingParams(temperature=0.0, max_tokens=STAMP_TOKENS, logprobs=2 if name == PLAIN else None)
    outputs = llm.generate([BUILT_IN[place] for place in places], params, use_tqdm=False)
    for place, output in zip(places, outputs, strict=True):
        yield stamp_row(name, place, 0.0, output)


def rows_of(name: str, size: int, number: int, group: Group, turn: Turn, zero: float) -> Iterator[Row]:
    """Return the rows of a contestant's turn."""
    places: dict[str, int] = {}
    for output, started in zip(turn.outputs, turn.started, strict=True):
        question = group.questions[int(output.request_id)]
        place = places.get(output.request_id, 0)
        places[output.request_id] = place + 1
        sample = output.outputs[0]
        yield Row(
            contestant=name,
            batch_size=size,
            group=number,
            question=question.number,
            turn=place,
            category=question.category,
            prompt_sha256=sha256_of(output.prompt_token_ids),
            start=round(started - zero, 6),
            steps=[
                (round(step.time, 6), step.num_emitted, len(step.token_ids), len(step.accepted))
                for step in sample.draft_steps or ()
            ],
            tokens=sample.token_ids,
            finish=sample.finish_reason or "",
        )


def drafters_of(resolved: ResolvedSpeculation) -> list[Files]:
    """Return the hashes of all models that a configuration drafts with."""
    members = getattr(resolved.proposer_config, "proposers", ())
    configs = [resolved.proposer_config, *(member.config for member in members)]
    return [Files.of(config.model, config.model) for config in configs if config.model]


def stamp_row(name: str, prompt: int, temperature: float, output: RequestOutput) -> StampRow:
    """Return an output as a row of the stamp; samples are filled up to their length."""
    answers: list[list[Symbol]] = []
    for sample in output.outputs:
        missing = SAMPLE_TOKENS - len(sample.token_ids) if temperature else sample.finish_reason == "stop"
        answers.append([*sample.token_ids, *[END] * missing])
    places = output.outputs[0].logprobs
    return StampRow(
        contestant=name,
        prompt=prompt,
        prompt_sha256=sha256_of(output.prompt_token_ids),
        temperature=temperature,
        answers=answers,
        places=None
        if places is None
        else [{str(t): round(p.logprob, 5) for t, p in at.items()} for at in places],
        drafted=output.metrics.num_draft_tokens,
    )
