"""Random schedules: requests that arrive, are aborted, end inside drafts and preempt each other."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from specdec import LLM, RequestOutput, SamplingParams, StructuredOutputsParams

MOST_TOKENS = 28
MAX_LEN = 176
_REGEXES = ("[a-z]{3,9}( [0-9]+)*", r"(def|return) [a-z_]+\(self\):\n(.|\n)*", "[a-z ]{1,6}")


@dataclass(frozen=True)
class Arrival:
    """One request of a schedule.

    Args:
        step: before which step it arrives.
        prompt: its token ids.
        keys: its sampling parameters.
        aborted_at: before which step it is aborted, should it still run; None for never.
    """

    step: int
    prompt: list[int]
    keys: dict[str, Any]
    aborted_at: int | None

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""
        return SamplingParams(**self.keys)


def draw(seed: int, ids: list[int]) -> list[Arrival]:
    """Return three to nine requests, in the order of their arrival.

    Args:
        ids: a text of at least 100 tokens, of which prompts are the beginning, or some part.
    """
    chance = random.Random(seed)
    arrivals = []
    for row in range(chance.randint(3, 9)):
        length = chance.choice((1, chance.randint(2, 30), chance.randint(30, 90)))
        start = 0 if chance.random() < 0.5 else chance.randrange(len(ids) - length)
        step = 0 if chance.random() < 0.4 else chance.randrange(24)
        aborted_at = step + chance.randrange(14) if chance.random() < 0.2 else None
        arrivals.append(Arrival(step, ids[start : start + length], _keys(chance, row, ids), aborted_at))
    return sorted(arrivals, key=lambda arrival: arrival.step)


def _keys(chance: random.Random, row: int, ids: list[int]) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "seed": row,
        "max_tokens": chance.randint(1, MOST_TOKENS),
        "temperature": chance.choice((0.0, 0.0, 0.8, 1.1)),
        "ignore_eos": chance.random() < 0.5,
    }
    more: dict[str, Any] = {
        "n": chance.randint(2, 3),
        "top_p": 0.9,
        "top_k": 20,
        "stop": chance.sample(["\n", "e", "self", "re", "    "], 2),
        "stop_token_ids": chance.sample(ids, 3),
        "min_tokens": chance.randint(1, keys["max_tokens"]),
        "logprobs": chance.randint(0, 3),
        "prompt_logprobs": 1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "bad_words": ["self", "return"],
        "structured_outputs": StructuredOutputsParams(regex=chance.choice(_REGEXES)),
        "prediction": "    return self._name\n\ndef value(self):\n    return self.",
    }
    return keys | {name: value for name, value in more.items() if chance.random() < 0.15}


def serve(llm: LLM, arrivals: list[Arrival]) -> list[RequestOutput]:
    """Serve a schedule, one step after another, to its end; returns the last output of each request."""
    engine = llm._built.engine
    requests = [llm._prepare({"prompt_token_ids": a.prompt}, a.params, is_streaming=False) for a in arrivals]
    names = [request.request_id for request in requests]
    found: dict[str, RequestOutput] = {}
    step = 0
    while engine.has_work or step <= max(arrival.step for arrival in arrivals):
        for request, arrival in zip(requests, arrivals, strict=True):
            if arrival.step == step:
                engine.add(request)
            if arrival.aborted_at == step and request.request_id not in found:
                found |= {output.request_id: output for output in engine.abort([request.request_id])}
        if engine.has_work:
            found |= {output.request_id: output for output in engine.step() if output.finished}
        step += 1
        assert step < 2000, "it never ends"
    return [found[name] for name in names]
