"""Sampler by draft kind by sampling parameter: for each cell a check, and a mutant that the check must catch.

A model of four ids says four of them; all its texts are enumerated from a naive reading of the parameters
(`speccheck.naive`), and a chi-square statistic compares what the engine samples with them. A lossy sampler keeps no law once
there are drafts: of its texts those are counted that cannot occur at all, and those of temperature 0 that are not the best.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import tokenizers
import torch
import transformers as hf

from speccheck.engines import scripted
from speccheck.models import copied, few_ids
from speccheck.naive import Constraints, TextProbs, greedy_text, text_probs
from speccheck.texts import excess_of_texts
from specdec import LLM, SamplingParams

LETTERS = "abc."
VOCAB, END, LENGTH, NUM_SAMPLES = 4, 3, 4, 1600
PROMPT = [1, 0, 1]
PROMPTS = [list(ids) for ids in product(range(VOCAB), repeat=4)]

LOSSY = ("typical",)
SAMPLERS = ("strict", "probabilistic", "block", *LOSSY)
DRAFTS: dict[str, dict[str, Any]] = {
    "none": scripted(k=2),
    "chain": scripted(k=2),
    "tree": scripted(k=6, shape="tree"),
    "drawn chain": {"method": "speccheck.drawing.Drawing", "num_speculative_tokens": 2},
    "drawn siblings": {"method": "speccheck.drawing.Drawing", "num_speculative_tokens": 4, "shape": "iid"},
    "distinct siblings": {
        "method": "speccheck.drawing.Drawing", "num_speculative_tokens": 4, "shape": "without_replacement",
    },
}  # fmt: skip


def processor(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Forbids the last token and favours another id at each length."""
    if output:
        logits[output[-1]] = -torch.inf
    logits[len(output) % VOCAB] += 1.5
    return logits


def _follows(pattern: str) -> Callable[[Sequence[int]], bool]:
    """Whether a text, its end included, may still become a match of a pattern over the letters."""
    words = [word for length in range(LENGTH + 1) for word in _words(length) if re.fullmatch(pattern, word)]

    def follows(tokens: Sequence[int]) -> bool:
        text = "".join(LETTERS[t] for t in tokens)
        if text.endswith("."):
            return text[:-1] in words
        return "." not in text and any(word.startswith(text) for word in words)

    return follows


def _words(length: int) -> list[str]:
    return [""] if length == 0 else [word + letter for word in _words(length - 1) for letter in LETTERS[:END]]


@dataclass(frozen=True)
class Parameter:
    """A sampling parameter, at values at which it matters.

    Args:
        keys: of `SamplingParams`.
        mutants: names in `speccheck.mutants`: for requests without a draft, and with one.
        constraints: what the naive law must be told.
        stop: a stop string.
    """

    keys: dict[str, Any]
    mutants: tuple[str, str] = ("ignored", "ignored at drafted nodes")
    constraints: Constraints = field(default_factory=Constraints)
    stop: str | None = None


GRAMMAR = "(a[bc]){1,2}"
LAWS: dict[str, Parameter] = {
    "temperature": Parameter({"temperature": 0.4}),
    "top_k": Parameter({"top_k": 2}),
    "top_p": Parameter({"top_p": 0.6}),
    "min_p": Parameter({"min_p": 0.6}),
    "presence_penalty": Parameter({"presence_penalty": 2.0}, ("ignored", "drafted path forgotten")),
    "frequency_penalty": Parameter({"frequency_penalty": 2.0}, ("ignored", "drafted path forgotten")),
    "repetition_penalty": Parameter({"repetition_penalty": 0.2}, ("ignored", "ignored at drafted nodes")),
    "logit_bias": Parameter({"logit_bias": {1: 2.5, 2: -2.5}}),
    "bad_words": Parameter(
        {"bad_words": ["ab", "cc", "bba"]}, ("ignored", "drafted path forgotten"),
        Constraints(bad_ids=((0, 1), (2, 2), (1, 1, 0))),
    ),
    "allowed_token_ids": Parameter({"allowed_token_ids": [0, 1, 3]}),
    "min_tokens": Parameter(
        {"min_tokens": 3, "stop_token_ids": [1], "ignore_eos": False}, ("ignored", "ignored at drafted nodes"),
        Constraints(end_ids=(END,)),
    ),
    "logits_processors": Parameter({"logits_processors": [processor]}, ("ignored", "drafted path forgotten")),
    "structured_outputs": Parameter(
        {"structured_outputs": {"regex": GRAMMAR}, "max_tokens": LENGTH + 1}, ("ignored", "grammar stands still"),
        Constraints(follows=_follows(GRAMMAR)),
    ),
    "stop_token_ids": Parameter({"stop_token_ids": [0]}, ("no stops", "stops at the last token only")),
    "stop": Parameter({"stop": "ab"}, ("no stops", "stops at the last token only"), stop="ab"),
    "ignore_eos": Parameter({"ignore_eos": False}, ("no stops", "stops at the last token only")),
    "max_tokens": Parameter({"max_tokens": 3}, ("one token too many", "one token too many")),
    "n": Parameter({"n": NUM_SAMPLES}, ("samples share their noise", "samples share their noise")),
}  # fmt: skip
CHECKS: dict[str, Parameter] = {
    "seed": Parameter({}, ("noise of the place in the batch",) * 2),
    "logprobs": Parameter({"logprobs": 1}, ("of the row before", "of the row before")),
    "prompt_logprobs": Parameter({"prompt_logprobs": 1}, ("of the row before", "of the row before")),
}
PARAMETERS = LAWS | CHECKS
OF_LAWS_ONLY = ("temperature", "n")
"""Change how often texts come, and neither which of them may nor which is the best."""
CELLS = [
    (sampler, draft, name)
    for name in PARAMETERS
    for sampler in SAMPLERS
    for draft in DRAFTS
    if draft == "none" or sampler not in LOSSY or name not in OF_LAWS_ONLY
]
"""What there is a check for."""


@dataclass(frozen=True)
class Result:
    """What a check found: the statistic must stay below the bound."""

    value: float
    limit: float
    num_accepted: int = 0

    @property
    def is_good(self) -> bool:
        """Whether the check passed."""
        return self.value < self.limit


@cache
def model() -> hf.PreTrainedModel:
    """Return a model of four ids, each of which has a fair share."""
    return few_ids(VOCAB, flatness=0.3, end=END)


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are letters, and whose full stop is the end of text."""
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token="a")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=".")


def params_of(name: str, seed: int, *, is_drafted: bool) -> SamplingParams:
    """Return the parameters of one request."""
    keys = {"temperature": 1.0, "max_tokens": LENGTH, "ignore_eos": True} | PARAMETERS[name].keys
    return SamplingParams(**keys, seed=seed, speculative=None if is_drafted else False)


def is_end_of(name: str) -> Callable[[Sequence[int]], bool]:
    """Return whether an output ends with its last token, under a parameter."""
    parameter, params = PARAMETERS[name], params_of(name, 0, is_drafted=True)
    ends = set(params.stop_token_ids or ())
    if not params.ignore_eos or params.structured_outputs is not None:
        ends.add(END)

    def is_end(text: Sequence[int]) -> bool:
        letters = "".join(LETTERS[t] for t in text if t != END)  # the end of text is no part of it
        return text[-1] in ends or (parameter.stop is not None and parameter.stop in letters)

    return is_end


@cache
def law_of(name: str) -> TextProbs:
    """Return the exact law of the texts under a parameter."""
    params = params_of(name, 0, is_drafted=True)
    return text_probs(copied(model()), PROMPT, params, PARAMETERS[name].constraints, is_end_of(name))


@cache
def best_texts(name: str) -> list[list[int]]:
    """Return the text of temperature 0 after each prompt of four ids."""
    params = params_of(name, 0, is_drafted=True)
    wide, constraints = copied(model()), PARAMETERS[name].constraints
    return [greedy_text(wide, prompt, params, constraints, is_end_of(name)) for prompt in PROMPTS]


def engine(sampler: str, draft: str, name: str) -> LLM:
    """Return an engine for one cell; its scripted proposers believe in likely texts, so that acceptance depends on the text."""
    config = DRAFTS[draft] | {"rejection_sample_method": sampler}
    if "Scripted" in config["method"]:
        law = law_of(name if name in LAWS else "temperature")
        best = sorted(law, key=law.__getitem__, reverse=True)[:24]
        config |= {"texts": [[*PROMPT, *text] for text in best]}
        if sampler in LOSSY and name in LAWS:
            known = [[*prompt, *text] for prompt, text in zip(PROMPTS, best_texts(name), strict=True)]
            config |= {"texts": [*config["texts"], *known]}
    return LLM(
        copied(model()), tokenizer=tokenizer(), speculative_config=config, max_model_len=16, max_num_seqs=64,
        enable_prefix_caching=False,
    )  # fmt: skip


def check(sampler: str, draft: str, name: str) -> Result:
    """Run the check of one cell."""
    llm = engine(sampler, draft, name)
    is_drafted = draft != "none"
    if name in LAWS and is_drafted and sampler in LOSSY:
        result = _check_support(llm, name)
    elif name in LAWS:
        result = _check_law(llm, name, is_drafted=is_drafted)
    elif name == "seed":
        result = _check_seed(llm, is_drafted=is_drafted)
    else:
        result = _check_logprobs(llm, name, is_drafted=is_drafted)
    return replace(result, num_accepted=llm._built.engine.metrics.num_accepted_tokens)


def _check_law(llm: LLM, name: str, *, is_drafted: bool) -> Result:
    many = 1 if name == "n" else NUM_SAMPLES
    params = [params_of(name, 1_000_003 * i + 7, is_drafted=is_drafted) for i in range(many)]
    outputs = llm.generate([PROMPT] * many, params)
    texts = Counter(tuple(c.token_ids) for output in outputs for c in output.outputs)
    return Result(excess_of_texts(texts, law_of(name)), 1.0)


def _check_support(llm: LLM, name: str) -> Result:
    """Texts that cannot occur, and texts of temperature 0 that are not the best."""
    many = [params_of(name, 1_000_003 * i + 7, is_drafted=True) for i in range(NUM_SAMPLES)]
    texts = [tuple(o.outputs[0].token_ids) for o in llm.generate([PROMPT] * NUM_SAMPLES, many)]
    greedy = [
        params_of(name, 1_000_003 * i + 7, is_drafted=True).model_copy(update={"temperature": 0.0})
        for i in range(len(PROMPTS))
    ]  # the seeds are for drafts that are drawn
    best = [o.outputs[0].token_ids for o in llm.generate(PROMPTS, greedy)]
    wrong = sum(text not in law_of(name) for text in texts)
    wrong += sum(got != want for got, want in zip(best, best_texts(name), strict=True))
    return Result(float(wrong), 0.5)


def _check_seed(llm: LLM, *, is_drafted: bool) -> Result:
    """Texts that change when requests come in another order, behind others."""
    params = [params_of("seed", 50 + i, is_drafted=is_drafted) for i in range(40)]
    first = [o.outputs[0].token_ids for o in llm.generate([PROMPT] * 40, params)]
    others = [params_of("seed", 500 + i, is_drafted=is_drafted) for i in range(5)]
    second = llm.generate([PROMPT] * 45, [*others, *reversed(params)])
    again = [o.outputs[0].token_ids for o in reversed(second[5:])]
    return Result(float(sum(a != b for a, b in zip(first, again, strict=True))), 0.5)


def _check_logprobs(llm: LLM, name: str, *, is_drafted: bool) -> Result:
    """The largest error of a log probability, against one plain forward pass."""
    params = [params_of(name, 50 + i, is_drafted=is_drafted) for i in range(40)]
    worst = 0.0
    for output in llm.generate([PROMPT] * 40, params):
        tokens = [*PROMPT, *output.outputs[0].token_ids]
        with torch.inference_mode():
            law = torch.log_softmax(model()(torch.tensor([tokens]), use_cache=False).logits[0].float(), -1)
        entries = output.outputs[0].logprobs if name == "logprobs" else (output.prompt_logprobs or [])[1:]
        start = len(PROMPT) if name == "logprobs" else 1
        assert entries is not None
        assert len(entries) == (len(tokens) - start if name == "logprobs" else len(PROMPT) - 1)
        for place, entry in enumerate(entries, start):
            assert entry is not None
            worst = max(worst, abs(entry[tokens[place]].logprob - law[place - 1, tokens[place]].item()))
    return Result(worst, 1e-4)
