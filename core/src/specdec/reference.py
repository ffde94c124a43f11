"""The verify loop in its simplest form: one request, a dense cache. The engine is tested against it.

Each step runs propose -> score -> verify -> commit. The draft is a chain, the sampler is `strict`, and the
model is any causal language model of `transformers` without recurrent states, which its cache cannot roll back.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.interfaces import LogitsRules
from specdec.logits import RowBlock, p_logits
from specdec.noise import exponentials
from specdec.sampling_params import SamplingParams

_CACHES = ("cache", "past_key_values")
"""What versions of `transformers` call the argument that takes a cache."""
Propose = Callable[[list[int], int], list[int]]
"""Takes all tokens so far and the most tokens to draft; returns the draft."""


@torch.inference_mode()
def generate(
    model: PreTrainedModel,
    prompt: list[int],
    propose: Propose,
    num_speculative_tokens: int,
    params: SamplingParams,
    rules: LogitsRules | None = None,
) -> list[int]:
    """Return the tokens after `prompt`: `params.max_tokens` of them, drawn from the model's own distribution.

    `rules` hold what `params` request beyond temperature, top-k, top-p and min-p.

    The result does not depend on what `propose` returns; this is the guarantee of speculative decoding.
    """
    assert params.max_tokens is not None
    cache, parameters = DynamicCache(config=model.config), signature(model.forward).parameters
    name = next(name for name in _CACHES if name in parameters)
    tokens = list(prompt)
    end = len(prompt) + params.max_tokens
    while len(tokens) < end:
        # Propose: leave room for the token that verification adds.
        draft = propose(tokens, min(num_speculative_tokens, end - len(tokens) - 1))
        # Score: one pass over the tokens that are not in the cache yet and the draft.
        known = cache.get_seq_length()
        rows = model(torch.tensor([tokens[known:] + draft]), use_cache=True, **{name: cache}).logits[0]
        committed = np.array(tokens, np.int32)
        block = RowBlock(params, draft, rules=rules, committed=committed, num_prompt_tokens=len(prompt))
        rows = p_logits(rows[-len(draft) - 1 :], [block])
        # Verify: accept drafted tokens while they equal what plain sampling draws at their positions.
        emitted: list[int] = []
        for depth in range(len(draft) + 1):
            if depth and rules is not None and depth in rules.dead_rows:
                break  # the next step tries again without the draft
            emitted.append(_draw(rows[depth], params, len(tokens) + depth))
            if depth == len(draft) or draft[depth] != emitted[depth]:
                break
        # Commit: append the emitted tokens; the last one has no row in the cache yet.
        tokens += emitted
        if rules is not None and rules.grammar is not None:
            rules.grammar.advance(emitted)
        surplus = cache.get_seq_length() - (len(tokens) - 1)
        if surplus > 0:
            cache.crop(-surplus)
    return tokens[len(prompt) :]


def _draw(logits: torch.Tensor, params: SamplingParams, position: int) -> int:
    """Draw from softmax(logits) with the noise of (seed, position); temperature 0 takes the argmax."""
    if params.is_greedy:
        return int(logits.argmax())
    zero = torch.zeros(1, dtype=torch.int64)
    noise = exponentials(zero + (params.seed or 0), zero + position, zero, zero, logits.shape[-1])[0]
    return int((noise / torch.softmax(logits, -1).double()).argmin())
