"""Turns the rows of a call into engine requests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    StoppingCriteriaList,
)

from specdec import ConfigError, SamplingParams
from specdec.engine import Request
from specdec.logits.rules import RequestRules
from specdec_transformers.attached import Session
from specdec_transformers.processors import RowProcessors, for_row
from specdec_transformers.sampling import sampling_of

_SEEDS = 2**63 - 1
_OWN_CRITERIA = (EosTokenCriteria, MaxLengthCriteria)
"""Criteria that the engine implements itself."""


def make_requests(
    session: Session,
    prompts: Sequence[Sequence[int]],
    input_ids: torch.Tensor,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
) -> list[Request]:
    """Return a request of one sample for every row.

    Args:
        session: the engine.
        prompts: `[B]` the rows without padding.
        input_ids: `[B, L]` the rows with padding.
        processors: logits processors of the call.
        criteria: stopping criteria of the call.
        config: generation config of the call.

    Raises:
        ConfigError: for a prompt that does not fit.
    """
    num_new = _num_new(session, prompts, input_ids.shape[1], criteria)
    sampling = sampling_of(processors, do_sample=bool(config.do_sample))
    ends = sorted({i for c in criteria if type(c) is EosTokenCriteria for i in c.eos_token_id.tolist()})
    room = num_new + session.num_speculative_tokens
    made = []
    for place, prompt in enumerate(prompts):
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=int(torch.randint(_SEEDS, ())) if config.do_sample else 0,
            max_tokens=num_new,
            ignore_eos=True,
            stop_token_ids=ends,
        )
        input_processor = session.input_processor
        request = input_processor.prepare(input_processor.next_id(), list(prompt), params, is_streaming=False)
        if sampling.processors:
            own = [for_row(processor, place, len(prompts)) for processor in sampling.processors]
            request.sequences[0].rules = RequestRules([], None, RowProcessors(own, input_ids[place], room))
        made.append(request)
    return made


def has_others(criteria: StoppingCriteriaList) -> bool:
    """Return whether there are criteria that the engine does not implement itself."""
    return any(type(criterion) not in _OWN_CRITERIA for criterion in criteria)


def pad_of(criteria: StoppingCriteriaList, config: GenerationConfig) -> int | None:
    """Return the padding after the end of a row, or None if transformers continues all rows until all have ended."""
    if not any(hasattr(criterion, "eos_token_id") for criterion in criteria):
        return None
    pad = config._pad_token_tensor
    return None if pad is None else int(pad)


def _num_new(
    session: Session, prompts: Sequence[Sequence[int]], width: int, criteria: StoppingCriteriaList
) -> int:
    limit = session.built.info.max_model_len
    longest = max(map(len, prompts))
    if criteria.max_length is None:
        return limit - longest
    num_new = int(criteria.max_length) - width
    if longest + num_new > limit:
        raise ConfigError(
            f"generate: a prompt of {longest} tokens and {num_new} new ones are more than the {limit} positions of the model "
            f"(or of max_model_len): set max_new_tokens to at most {max(0, limit - longest)}"
        )
    return num_new
