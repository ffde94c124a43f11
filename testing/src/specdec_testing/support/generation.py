"""Generates texts with the whole engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from specdec import LLM, SamplingParams
from specdec_testing.support.target import CheckTarget

MAX_TOKENS = 28
_MAX_BATCHED_TOKENS = 32
"""Small enough for chunked prefill."""
_MAX_SEQS = 3
_BLOCK_SIZE = 16


def params(temperature: float, count: int) -> list[SamplingParams]:
    """Return sampling parameters for `count` requests with different seeds."""
    return [
        SamplingParams(temperature=temperature, seed=1000 + i, max_tokens=MAX_TOKENS, ignore_eos=True)
        for i in range(count)
    ]


def generate(
    target: CheckTarget,
    speculation: Mapping[str, Any] | None,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    *,
    num_rounds: int = 1,
) -> list[list[int]]:
    """Return the output tokens for every prompt, from an engine small enough for chunked prefill, preemption and joins.

    Args:
        target: the target.
        speculation: `speculative_config`; None for plain decoding.
        prompts: token ids.
        temperature: of all requests.
        num_rounds: how often the engine generates the same; the tokens are those of the last time.
    """
    config: Any = None
    if speculation is not None:  # every draft that may be made is made
        config = {"adaptive": False, **speculation, "on_proposer_error": "raise"}
    llm = LLM(
        target.loaded,
        speculative_config=config,
        max_model_len=target.max_len,
        max_num_seqs=_MAX_SEQS,
        max_num_batched_tokens=_MAX_BATCHED_TOKENS,
        block_size=_BLOCK_SIZE,
        num_gpu_blocks_override=-(-target.max_len // _BLOCK_SIZE) + 2,
        strict_drafts=True,
    )
    for _ in range(num_rounds):
        outputs = llm.generate(
            [list(prompt) for prompt in prompts], params(temperature, len(prompts)), use_tqdm=False
        )
    return [output.outputs[0].token_ids for output in outputs]


@cache
def plain(target: CheckTarget, prompts: tuple[tuple[int, ...], ...], temperature: float) -> list[list[int]]:
    """Return the output of plain decoding."""
    return generate(target, None, prompts, temperature)
