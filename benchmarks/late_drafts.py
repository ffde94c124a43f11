"""Late drafts, made from text that is one step old, beside drafts from the whole text: what is accepted, without a device.

    python benchmarks/late_drafts.py --questions FILE [--model smollm2] [--per-category 5] [--max-tokens 128] [--quick]

FILE is Spec-Bench's `question.jsonl`; the first turns are asked. With `strict` a text does not depend on drafts, so each is
generated once, by plain decoding, and replayed for every variant: a drafted token is accepted if it is the text's. A late
draft is asked for while a step runs, of k tokens and what the step may emit, and aligned with what it emitted. No times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common.provenance import provenance
from common.results import RESULTS

from specdec import LLM, SamplingParams
from specdec.interfaces import FinishReason
from specdec_cli.bench.suites import OVERALL, even_sample, load_suite
from specdec_cli.bench.suites.chat import Chat
from specdec_hosting import HostedProposer, HostTarget, open_proposer

_LONG_S = 1e6
"""Longer than any step: no draft may be missing because this machine was busy."""
_SUFFIX: dict[str, Any] = {"method": "suffix", "suffix_decoding_time_budget_ms": 1e3 * _LONG_S}
METHODS: tuple[tuple[dict[str, Any], int, dict[str, Any]], ...] = (
    ({"method": "ngram"}, 5, {"prompt_lookup_min": 1, "prompt_lookup_max": 4}),
    (_SUFFIX, 5, {"suffix_decoding_max_spec_factor": 4.0}),
    (_SUFFIX, 24, {"suffix_decoding_max_spec_factor": 4.0}),
)
"""Shipped defaults, k, and what a late draft may have instead: agreement with the emitted tokens makes a match longer."""


@dataclass(frozen=True)
class Variant:
    """One way to draft."""

    name: str
    is_late: bool = False
    has_own_keys: bool = False
    """Whether the last column of `METHODS` applies."""
    allows_correction: bool = False


VARIANTS = (
    Variant("lag 0"),
    Variant("late", is_late=True),
    Variant("late, corrected", is_late=True, allows_correction=True),
    Variant("late, own keys", is_late=True, has_own_keys=True),
    Variant("late, own keys, corrected", is_late=True, has_own_keys=True, allows_correction=True),
)


@dataclass(frozen=True)
class Text:
    """An answer of the target."""

    task: str
    prompt: list[int]
    token_ids: list[int]
    max_tokens: int
    finish_reason: FinishReason


@dataclass
class Counts:
    """Steps that decode, and what they verified and emitted."""

    num_steps: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0

    def add(self, num_drafted: int, num_accepted: int, num_emitted: int) -> None:
        """Count one step."""
        self.num_steps += 1
        self.num_drafts += num_drafted > 0
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self.num_emitted_tokens += num_emitted

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens of all steps, with a draft or without."""
        return self.num_emitted_tokens / max(self.num_steps, 1)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens of a step with a draft."""
        return 1 + self.num_accepted_tokens / max(self.num_drafts, 1)

    @property
    def drafted_share(self) -> float:
        """Share of the steps that had a draft."""
        return self.num_drafts / max(self.num_steps, 1)


def opened(config: Mapping[str, Any], k: int, variant: Variant, target: HostTarget) -> HostedProposer:
    """Open a proposer; one of late drafts may draft what a step emits, and k tokens behind that."""
    most = 2 * k + 1 if variant.is_late else k
    keys = {"num_speculative_tokens": most, "adaptive": False, "on_proposer_error": "raise"}
    hosted = open_proposer({**config, **keys}, target, host="a replayed text")
    hosted.observe_target(_LONG_S)
    return hosted


def replay(
    hosted: HostedProposer, request_id: str, text: Text, k: int, variant: Variant, counts: Sequence[Counts]
) -> None:
    """Run one request to its end, as an engine would whose target chooses the tokens of `text`.

    Args:
        hosted: of `opened` with the same k and variant.
        request_id: any that is not in use.
        text: what the target chooses.
        k: most tokens that are verified in a step.
        variant: when drafts are made, and what is left of them.
        counts: each counts all steps but that of the prompt.
    """

    def proposed(most: int) -> list[int]:
        return list(hosted.propose([request_id], [most]).rows[0])

    hosted.start(
        request_id, text.prompt, SamplingParams(temperature=0.0, max_tokens=text.max_tokens, ignore_eos=True)
    )
    if not variant.is_late:
        proposed(0)  # as in the step of a prompt: the tokens are taken in
    position, draft = 0, list[int]()
    while position < len(text.token_ids):
        # While the step runs the proposer knows the text before it, and how many tokens are verified.
        late = proposed(k + len(draft) + 1) if variant.is_late else []
        num_accepted, emitted = verified(draft, text.token_ids[position:])
        hosted.commit(request_id, emitted, num_drafted=len(draft), num_accepted=num_accepted)
        for own in counts if position else ():
            own.add(len(draft), num_accepted, len(emitted))
        position += len(emitted)
        if position == len(text.token_ids):
            break
        draft = left_of(late, emitted, k, variant.allows_correction) if variant.is_late else proposed(k)
    hosted.finish([request_id], text.finish_reason)


def verified(draft: Sequence[int], rest: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many drafted tokens are those that come next, and these with the one after them, if there is one."""
    num_accepted = 0
    while num_accepted < min(len(draft), len(rest)) and draft[num_accepted] == rest[num_accepted]:
        num_accepted += 1
    return num_accepted, list(rest[: num_accepted + 1])


def left_of(late: Sequence[int], emitted: Sequence[int], k: int, allows_correction: bool) -> list[int]:
    """Return what is left of a late draft that begins with a guess of the emitted tokens, if that was right; else nothing.

    With `allows_correction` the last emitted token, which verification added, may be another one.
    """
    guessed = emitted[:-1] if allows_correction else emitted
    return list(late[len(emitted) :][:k]) if list(late[: len(guessed)]) == list(guessed) else []


def measured(
    texts: Sequence[Text],
    method: tuple[dict[str, Any], int, dict[str, Any]],
    variant: Variant,
    target: HostTarget,
) -> dict[str, Counts]:
    """Return the counts of each task and of all together; the proposer meets the texts one after another."""
    config, k, own = method
    hosted = opened(config | own if variant.has_own_keys else config, k, variant, target)
    counts = {name: Counts() for name in (OVERALL, *dict.fromkeys(text.task for text in texts))}
    for number, text in enumerate(texts):
        replay(hosted, str(number), text, k, variant, (counts[OVERALL], counts[text.task]))
    return counts


def answered(
    llm: LLM, prompts: Sequence[list[int]], tasks: Sequence[str], temperature: float, max_tokens: int
) -> list[Text]:
    """Return the target's answers, by plain decoding; the seed of each is its number."""
    params = [
        SamplingParams(temperature=temperature, seed=number, max_tokens=max_tokens)
        for number in range(len(prompts))
    ]
    outputs = llm.generate(list(prompts), params, use_tqdm=False)
    texts = []
    for prompt, task, output in zip(prompts, tasks, outputs, strict=True):
        answer = output.outputs[0]
        assert answer.finish_reason is not None
        reason = FinishReason(answer.finish_reason)
        texts.append(Text(task, prompt, list(answer.token_ids), max_tokens, reason))
    return texts


def main() -> int:
    """Generate the texts, replay them, print a table, write the result."""
    parser = argparse.ArgumentParser(description="acceptance of late drafts beside that of others")
    add = parser.add_argument
    add("--questions", type=Path, required=True, help="Spec-Bench's question.jsonl")
    add("--model", default="smollm2")
    add("--per-category", type=int, default=5)
    add("--max-tokens", type=int, default=128)
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: one question of each category, 16 tokens")
    arguments = parser.parse_args()
    began = provenance()
    suite = load_suite("spec_bench", arguments.questions)
    num_each, num_tokens = (1, 16) if arguments.quick else (arguments.per_category, arguments.max_tokens)
    questions = even_sample(suite.questions, num_each * len({q.category for q in suite.questions}))
    llm = LLM(arguments.model, dtype="bfloat16", deterministic=True, max_num_seqs=8)
    chats = [Chat(question, llm.get_tokenizer(), sys.maxsize).prompt(()) for question in questions]
    prompts, tasks = [list(chat or ()) for chat in chats], [suite.tasks[q.category] for q in questions]
    longest = max(map(len, prompts)) + num_tokens
    target = HostTarget(vocab_size=len(llm.get_tokenizer()), max_model_len=longest)
    rows, names = [], list[str]()
    print("| method | temperature | drafts | tokens a step | acceptance length | steps with a draft |")
    print("|---|---|---|---|---|---|")
    for temperature in (0.0, 0.8):
        texts = answered(llm, prompts, tasks, temperature, num_tokens)
        for method in METHODS:
            for variant in VARIANTS:
                counts = measured(texts, method, variant, target)
                name, names, every = f"{method[0]['method']} k={method[1]}", list(counts), counts.values()
                numbers = [[c.tokens_per_step, c.mean_acceptance_length, c.drafted_share] for c in every]
                shown = [[float(f"{value:.3g}") for value in row] for row in zip(*numbers, strict=True)]
                rows.append([name, temperature, variant.name, *shown])
                first = " | ".join(f"{value:.3f}" for value in numbers[0])
                print(f"| {name} | {temperature} | {variant.name} | {first} |", flush=True)
    llm.shutdown()
    file = arguments.json or (None if arguments.quick else RESULTS / "late_drafts.json")
    if file is not None:
        packages = ("specdec-core", "arctic-inference", "torch", "transformers")
        settings = {"model": arguments.model, "num_prompts": len(prompts), "max_tokens": num_tokens}
        content = {
            "environment": began | {"versions": {name: version(name) for name in packages}},
            "settings": settings | {"own_keys": [own for _, _, own in METHODS]},
            "columns": [
                *("method", "temperature", "drafts"),
                *("tokens_per_step", "mean_acceptance_length", "drafted_share"),
            ],
            "groups": names,
            "rows": rows,
        }
        file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
