"""What a request asks of the proposer: one of the loaded methods, and arguments that the method's class reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from speccheck.engines import make_llm

from specdec import LLM, ConfigError, SamplingParams

PLUGIN = """
from pydantic import Field
from specdec import Draft, Proposer
from specdec.interfaces import RequestArgs

class Args(RequestArgs):
    token: int = Field(5, ge=0, le=9)

class Repeats(Proposer):
    name = "repeats"
    Args = Args

    def propose(self, batch):
        asked = [(params.speculative or {}).get("args", Args()) for params in batch.sampling_params]
        return Draft.from_lists([[args.token] * most for args, most in zip(asked, batch.max_nodes)])
"""


@pytest.fixture(scope="module")
def llm(subject: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    file = tmp_path_factory.mktemp("plugin") / "repeats.py"
    file.write_text(PLUGIN)
    made = make_llm(subject.model, {"method": f"{file}:Repeats", "num_speculative_tokens": 3})
    yield made
    made.shutdown()


def drafted(llm: LLM, speculative: Any, n: int = 1) -> set[int]:
    """Return the tokens that were drafted for a request."""
    params = SamplingParams(
        temperature=0.8,
        max_tokens=6,
        ignore_eos=True,
        speculative=speculative,
        return_draft_steps=True,
        n=n,
    )
    (output,) = llm.generate([{"prompt_token_ids": [11, 12, 13]}], params, use_tqdm=False)
    steps = [step for sample in output.outputs for step in sample.draft_steps or []]
    return {token for step in steps for token in step.token_ids}


def test_args_reach_the_proposer_as_its_class_reads_them(llm: LLM) -> None:
    assert drafted(llm, None) == {5}
    assert drafted(llm, {"args": {"token": 7}}) == {7}
    assert drafted(llm, {"method": "repeats", "args": {"token": "8"}, "num_speculative_tokens": 2}, n=2) == {
        8
    }
    assert drafted(llm, {"method": "repeats"}) == {5}
    assert drafted(llm, {"num_speculative_tokens": 0, "args": {}}) == set()
    assert drafted(llm, False) == set()


@pytest.mark.parametrize(
    ("speculative", "message"),
    [
        ({"args": {"token": 12}}, "speculative: args of 'repeats': 'token' = 12: input should be less than"),
        ({"args": {"tokn": 1}}, "speculative: args of 'repeats': unknown key 'tokn': did you mean 'token'?"),
        ({"method": "other"}, "speculative: 'method' is 'other'; methods that are loaded: repeats"),
        ({"method": 3}, "method must be a str, got 3"),
        ({"args": [1]}, "args must be a Mapping, got [1]"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be at least 0"),
        ({"num_speculative_tokens": True}, "num_speculative_tokens must be a int, got True"),
        ({"k": 1}, "supports method, num_speculative_tokens, args, got ['k']"),
    ],
)
def test_mistakes_are_told_before_anything_runs(llm: LLM, speculative: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        drafted(llm, speculative)


def test_without_speculation_no_method_can_be_chosen(subject: Any) -> None:
    plain = make_llm(subject.model)
    assert drafted(plain, {"num_speculative_tokens": 2}) == set()
    with pytest.raises(ConfigError, match="'method' is 'repeats'; methods that are loaded: none"):
        drafted(plain, {"method": "repeats"})
    with pytest.raises(ConfigError, match="'args' need a 'method'; methods that are loaded: none"):
        drafted(plain, {"args": {"token": 7}})
    plain.shutdown()
