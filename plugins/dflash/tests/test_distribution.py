"""The distribution of texts under every sampler, in the whole engine, against exact enumeration."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from dflash_check.shape import Shape, make_head, make_staged
from speccheck.engines import engine_of, make_llm, tokens_of
from speccheck.models import few_ids
from speccheck.naive import Constraints, text_probs
from speccheck.texts import excess_of_texts

from specdec import SamplingParams

VOCAB, LENGTH, SAMPLES = 5, 3, 2000
PROMPT = [1, 4, 0, 2]


@pytest.mark.parametrize(
    ("sampler", "num_logits", "family"),
    [
        pytest.param("strict", VOCAB, None, marks=pytest.mark.slow),
        ("strict", 4, None),
        ("probabilistic", VOCAB, None),
        pytest.param("probabilistic", 4, None, marks=pytest.mark.slow),
        pytest.param("block", VOCAB, None, marks=pytest.mark.slow),
        ("block", 4, None),
        ("probabilistic", VOCAB, "dflash2"),
        pytest.param("strict", VOCAB, "dflash2", marks=pytest.mark.slow),
        ("block", 4, "dspark"),
        pytest.param("probabilistic", 4, "xpress", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(2, slow=3)
def test_texts_follow_the_exact_law(
    tmp_path: Path, sampler: str, num_logits: int, family: str | None
) -> None:
    model = few_ids(VOCAB, flatness=0.25)
    size, layers = model.config.hidden_size, model.config.num_hidden_layers
    is_reduced = num_logits < VOCAB
    shape = Shape(
        vocab=VOCAB, num_logits=num_logits, hidden=size, target_hidden=size, aux=(1, layers), num_target_layers=layers,
        mask_id=3, block_size=4, has_map=is_reduced, has_own_lm_head=is_reduced,
    )  # fmt: skip
    path = make_staged(tmp_path, shape, family) if family else make_head(tmp_path, shape)[0]
    config = {
        "method": "dflash",
        "model": path,
        "num_speculative_tokens": 3,
        "rejection_sample_method": sampler,
    }
    llm = make_llm(model, config | {"on_proposer_error": "raise"}, max_model_len=16, max_num_seqs=64)
    params = [
        SamplingParams(temperature=0.9, top_k=4, max_tokens=LENGTH + 1, seed=1_000_003 * i, ignore_eos=True)
        for i in range(SAMPLES)
    ]
    short = params[0].model_copy(update={"max_tokens": LENGTH})
    law = text_probs(model, PROMPT, short, Constraints(), lambda text: False)
    texts = tokens_of(llm, [PROMPT] * SAMPLES, params)
    assert excess_of_texts(Counter(tuple(text[:LENGTH]) for text in texts), law) < 1
    assert engine_of(llm).metrics.num_accepted_tokens > SAMPLES / 4
