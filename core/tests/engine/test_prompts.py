"""What prompts, sampling parameters and engine arguments may be, and what is said of anything else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.engines import greedy, make_llm

from specdec import LLM, ConfigError

IDS = [5, 9, 100]
SAME = {
    "ids": IDS,
    "tuple": tuple(IDS),
    "array": np.array(IDS),
    "tensor": torch.tensor(IDS),
    "mapping": {"prompt_token_ids": IDS},
    "mapping of an array": {"prompt_token_ids": np.array(IDS, np.int32)},
    "one of many": [IDS],
    "array of many": np.array([IDS]),
    "numpy ids": [np.int64(i) for i in IDS],
    "a null of text": {"prompt": None, "prompt_token_ids": IDS},
}
WRONG = {
    "a number": (5, "a prompt must be text, .* not int"),
    "nothing": (None, "a prompt must be text, .* not NoneType"),
    "bytes": (b"abc", "a prompt must be text, .* not bytes"),
    "nothing in a list": ([None], "a prompt must be text, .* not NoneType"),
    "a fraction": ({"prompt_token_ids": [1.7]}, "ids must be integers, not 1.7"),
    "fractions": (np.array([[1.0, 2.0]]), "ids must be integers, not 1.0"),
    "a string among ids": ({"prompt_token_ids": [1, "a"]}, "ids must be integers, not 'a'"),
    "text as ids": ({"prompt_token_ids": "hello"}, "a prompt must be text, .* not str"),
    "a flag": ([[True]], "ids must be integers, not True"),
    "no ids": ({"prompt_token_ids": None}, "'prompt_token_ids' or 'prompt', not nothing"),
    "another key": ({"promt": "x"}, r"'prompt_token_ids' or 'prompt', not \['promt'\]"),
    "ids as text": ({"prompt": [1, 2]}, "'prompt' in a prompt mapping must be text, not list"),
    "outside": ([2**40], "outside the vocabulary"),
}


@pytest.fixture(scope="module")
def llm(subject) -> LLM:
    return make_llm(subject.model)


@pytest.mark.parametrize("kind", SAME)
def test_every_form_of_ids_is_the_same_prompt(llm, kind) -> None:
    [output] = llm.generate(SAME[kind], greedy(3))
    assert output.prompt_token_ids == IDS
    assert all(type(token) is int for token in output.prompt_token_ids)


@pytest.mark.parametrize("kind", WRONG)
def test_anything_else_is_told_what_a_prompt_is(llm, kind) -> None:
    prompt, told = WRONG[kind]
    with pytest.raises(ConfigError, match=told):
        llm.generate(prompt, greedy(3))


@pytest.mark.parametrize("params", [{"temperature": 0}, "greedy", [{"temperature": 0}]])
def test_sampling_params_are_of_their_class(llm, params) -> None:
    with pytest.raises(ConfigError, match="sampling_params must be a SamplingParams, not"):
        llm.generate([IDS], params)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_num_seqs": "4"}, "max_num_seqs='4' must be an integer"),
        ({"max_num_batched_tokens": 1.5}, "max_num_batched_tokens=1.5 must be an integer"),
        ({"block_size": True}, "block_size=True must be an integer"),
        ({"seed": "x"}, "seed='x' must be an integer"),
        ({"gpu_memory_utilization": True}, "gpu_memory_utilization=True must be a number"),
        ({"gpu_memory_utilization": "0.5"}, "gpu_memory_utilization='0.5' must be a number"),
        ({"device": "xyz"}, "device='xyz' cannot be used here"),
        ({"device": 1.5}, "device=1.5 cannot be used here"),
        pytest.param(
            {"device": "cuda"}, "device='cuda' cannot be used here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)  # fmt: skip
def test_engine_arguments_of_the_wrong_kind_are_named(subject, arguments, told) -> None:
    with pytest.raises(ConfigError, match=told):
        make_llm(subject.model, **arguments)
