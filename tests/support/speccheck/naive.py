"""What sampling parameters mean, one row and one id at a time; nothing of the package's own logits code is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import transformers as hf

from specdec import SamplingParams

TextProbs = dict[tuple[int, ...], float]
"""Probability of each text."""


@dataclass(frozen=True)
class Constraints:
    """What a naive computation must be told, because the package gets it from tokenizer or target.

    Args:
        end_ids: the target's end of text.
        bad_ids: token ids of `bad_words`.
        follows: whether a text may begin like this, end of text included, for `structured_outputs`.
    """

    end_ids: tuple[int, ...] = ()
    bad_ids: tuple[tuple[int, ...], ...] = ()
    follows: Callable[[Sequence[int]], bool] | None = None


def naive_logits(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    constraints: Constraints,
) -> list[float]:
    """Return one row's logits before temperature and truncation."""
    row = torch.tensor(list(logits))
    for processor in params.logits_processors or ():
        row = processor(list(output), row.clone())  # type: ignore[call-arg, arg-type]  # the form of two arguments
    values: list[float] = row.tolist()
    forbidden: set[int] = set()
    if params.allowed_token_ids is not None:
        forbidden |= set(range(len(values))) - set(params.allowed_token_ids)
    if len(output) < params.min_tokens:
        forbidden |= {*constraints.end_ids, *(params.stop_token_ids or ())}
    for word in constraints.bad_ids:
        if tuple(output[len(output) - len(word) + 1 :]) == word[:-1]:
            forbidden.add(word[-1])
    if constraints.follows is not None:
        forbidden |= {i for i in range(len(values)) if not constraints.follows([*output, i])}
    for i in range(len(values)):
        if params.logit_bias and i in params.logit_bias:
            values[i] += params.logit_bias[i]
        if i in prompt or i in output:
            factor = params.repetition_penalty
            values[i] = values[i] / factor if values[i] > 0 else values[i] * factor
        count = list(output).count(i)
        values[i] -= params.frequency_penalty * count + params.presence_penalty * (count > 0)
    return [-math.inf if i in forbidden else value for i, value in enumerate(values)]


def naive_law(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Return one row's probabilities: temperature, min-p, top-k, top-p, in this order; ties to the lowest id."""
    best = max(logits)
    weights = [math.exp((value - best) / params.temperature) for value in logits]
    weights = [w if w >= params.min_p * max(weights) else 0.0 for w in weights]
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    if params.top_k > 0:
        order = order[: params.top_k]
    total, mass, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if mass >= params.top_p * total and kept:
            break
        kept.append(i)
        mass += weights[i]
    return [weights[i] / mass if i in kept else 0.0 for i in range(len(weights))]


@torch.inference_mode()
def text_probs(
    model: hf.PreTrainedModel,
    prompt: Sequence[int],
    params: SamplingParams,
    constraints: Constraints,
    is_end: Callable[[Sequence[int]], bool],
) -> TextProbs:
    """Return the exact law of whole outputs, by enumeration, from the model in double precision.

    Args:
        model: a model of few ids.
        prompt: token ids.
        params: `max_tokens` of them at most.
        constraints: what the parameters refer to.
        is_end: whether an output ends here, however long it may become.
    """
    assert params.max_tokens is not None
    open_texts: TextProbs = {(): 1.0}
    done: TextProbs = {}
    wide = model.double()
    while open_texts:
        longer: TextProbs = {}
        for text, probability in open_texts.items():
            logits = wide(torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1].tolist()
            row = naive_law(naive_logits(logits, params, prompt, text, constraints), params)
            for token, q in enumerate(row):
                if q > 0.0:
                    longer[(*text, token)] = probability * q
        done |= {t: p for t, p in longer.items() if is_end(t) or len(t) == params.max_tokens}
        open_texts = {t: p for t, p in longer.items() if t not in done}
    model.float()
    return done


@torch.inference_mode()
def greedy_text(
    model: hf.PreTrainedModel,
    prompt: Sequence[int],
    params: SamplingParams,
    constraints: Constraints,
    is_end: Callable[[Sequence[int]], bool],
) -> list[int]:
    """Return the output of best tokens, ties to the lowest id; arguments as for `text_probs`."""
    text: list[int] = []
    wide = model.double()
    while not text or not (is_end(text) or len(text) == params.max_tokens):
        logits = wide(torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1].tolist()
        row = naive_logits(logits, params, prompt, text, constraints)
        text.append(row.index(max(row)))
    model.float()
    return text
