"""Check that greedy output equals that of `transformers`, token for token, without speculation and with each method.

    python benchmarks/identity.py --model smollm2 [--num-prompts 200] [--max-tokens 128] [--reference FILE]

`transformers` first runs padded batches. Prompts whose text differs run again alone, since padding changes rounding. A text
that still differs is an error, reported with the gap between the two best logits in float64; a gap near zero is a tie, which
rounding decides. The exit status is 1 if any text differs or if a method had no draft accepted. `--reference` saves the
texts of `transformers`, which take most of the time, for another run.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from common.model import resolve_model
from common.prompts import load_prompts
from common.provenance import provenance
from common.results import RESULTS, write
from common.ties import Float64Target
from transformers import AutoModelForCausalLM

from specdec import LLM, SamplingParams, SpeculativeOptions

_METHODS = ("none", "ngram", "ngram_gpu", "suffix", "draft_model", "eagle3", "eagle3_tree", "composite")
_BATCH = 8


@dataclass(frozen=True)
class Difference:
    """A prompt whose text differs from that of `transformers`."""

    prompt: int
    position: int
    """First generated token that differs."""
    gap: float
    """Gap between the two best logits there, in float64."""


@dataclass(frozen=True)
class Identity:
    """Number of equal texts of a method."""

    method: str
    num_prompts: int
    num_same: int
    num_accepted_tokens: int
    """Accepted drafted tokens; with none, equal texts prove nothing about the method."""
    differences: list[Difference]


class Reference:
    """Greedy texts of `transformers` in float32."""

    def __init__(self, model: Path, max_tokens: int, kept: Path | None) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._max_tokens = max_tokens
        self._kept = kept
        self._texts: dict[str, list[int]] = {}
        if kept is not None and kept.exists():
            self._texts = json.loads(kept.read_text(encoding="utf-8"))

    def answer(self, prompts: Sequence[list[int]], *, in_batches: bool) -> list[list[int]]:
        """Return the generated ids of each prompt, up to and including an end-of-sequence token."""
        size = _BATCH if in_batches else 1
        keys = [json.dumps([self._max_tokens, size, prompt]) for prompt in prompts]
        missing = sorted(
            {
                key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._texts
            }.items(),
            key=lambda item: len(item[1]),
        )
        for start in range(0, len(missing), size):
            piece = missing[start : start + size]
            texts = self._generate([prompt for _, prompt in piece])
            self._texts.update((key, text) for (key, _), text in zip(piece, texts, strict=True))
            if self._kept is not None:
                self._kept.write_text(json.dumps(self._texts), encoding="utf-8")
            print(
                f"\rtransformers: {min(start + size, len(missing))} of {len(missing)}",
                end="",
                file=sys.stderr,
            )
        if missing:
            print(file=sys.stderr)
        return [self._texts[key] for key in keys]

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        ends = self._model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or [])
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=self._max_tokens,
                pad_token_id=ends[0] if ends else 0,
            )  # fmt: skip
        return [_until_end(row, ends) for row in out[:, width:].tolist()]


def compare(
    llm: LLM,
    method: str,
    prompts: Sequence[list[int]],
    reference: Reference,
    max_tokens: int,
    ties: Float64Target,
) -> Identity:
    """Compare the texts of an engine with those of `transformers`."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    texts = [list(output.outputs[0].token_ids) for output in outputs]
    differing = [i for i, text in enumerate(reference.answer(prompts, in_batches=True)) if text != texts[i]]
    alone = reference.answer([prompts[i] for i in differing], in_batches=False)
    differences = []
    for i, text in zip(differing, alone, strict=True):
        if text != texts[i]:
            pairs = zip(text, texts[i], strict=False)
            position = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(text), len(texts[i])))
            gap = ties.top2_gap([*prompts[i], *text[:position]])
            differences.append(Difference(i, position, gap))
    metrics = {metric.name: metric for metric in llm.get_metrics()}
    accepted = metrics.get("vllm:spec_decode_num_accepted_tokens")
    num_accepted = 0 if accepted is None else int(accepted.value)  # type: ignore[union-attr]  # a counter
    return Identity(method, len(prompts), len(prompts) - len(differences), num_accepted, differences)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; return 1 if a text differs or a method has no accepted drafts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="'smollm2', 'zoo' or a path")
    parser.add_argument("--prompts", type=Path, help="as of the other comparisons; HumanEval without it")
    parser.add_argument("--longest", type=int, default=400, help="most tokens of a prompt")
    parser.add_argument("--num-prompts", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--max-num-seqs", type=int, default=8, help="requests in a step")
    parser.add_argument("--methods", nargs="+", default=_METHODS)
    parser.add_argument("--reference", type=Path, help="file that keeps the texts of transformers")
    parser.add_argument("--json", type=Path, default=RESULTS / "identity.json")
    options = parser.parse_args(arguments)
    model = Path(resolve_model(options.model))
    prompts = load_prompts(options.prompts, model, options.num_prompts, options.longest)
    reference = Reference(model, options.max_tokens, options.reference)
    reference.answer(prompts, in_batches=True)
    found, ties = [], Float64Target(model)
    for method in options.methods:
        started = time.perf_counter()
        llm = LLM(
            model=str(model), dtype="float32", max_num_seqs=options.max_num_seqs,
            speculative_config=None if method == "none" else _configuration(method, str(model)),
        )  # fmt: skip
        identity = compare(llm, method, prompts, reference, options.max_tokens, ties)
        del llm
        gc.collect()
        print(
            f"{method:12} {identity.num_same} of {identity.num_prompts} the same, {identity.num_accepted_tokens} drafted "
            f"tokens accepted, {time.perf_counter() - started:.0f} s"
        )
        for difference in identity.differences:
            print(f"  prompt {difference.prompt}, token {difference.position}: gap {difference.gap:.2g}")
        found.append(identity)
    write({"provenance": provenance(), "results": [asdict(identity) for identity in found]}, options.json)
    is_same = all(identity.num_same == identity.num_prompts for identity in found)
    is_drafted = all(i.num_accepted_tokens > 0 for i in found if i.method != "none")
    return 0 if is_same and is_drafted else 1


def _configuration(method: str, model: str) -> SpeculativeOptions:
    head: SpeculativeOptions = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4}
    if method == "eagle3":
        return head
    if method == "eagle3_tree":
        return {**head, "num_speculative_tokens": 8, "tree_top_k": 3}
    if method == "draft_model":  # the target as its own draft: every drafted token must be accepted
        return {"method": "draft_model", "model": model, "num_speculative_tokens": 5}
    if method == "composite":
        return {"method": "composite", "proposers": [{"method": "suffix"}, head]}
    return {"method": method, "num_speculative_tokens": 5}


def _until_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    """Return ids up to and including the first end token; the rest is padding."""
    return next((ids[: n + 1] for n, token in enumerate(ids) if token in ends), ids)


if __name__ == "__main__":
    sys.exit(main())
