"""How the target's ids and the draft's go together."""

import math

import pytest
import torch
from speccheck.own_vocabulary import own_vocabulary_draft
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, ConfigError, SamplingParams
from specdec_plugin_draft_model.vocabulary import shared_vocabulary
from specdec_runtime.drafting import equal_vocabulary

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizers():
    return [
        AutoTokenizer.from_pretrained(path) for path in (specdec_zoo.path("target"), own_vocabulary_draft())
    ]


@pytest.fixture(scope="module")
def shared(tokenizers):
    ours, theirs = tokenizers
    return shared_vocabulary(ours, theirs, len(ours), len(theirs), CPU)


def test_shared_ids_are_the_same_tokens(tokenizers, shared):
    ours, theirs = tokenizers
    indices = list(range(len(shared.target_ids)))
    target_ids, draft_ids = shared.name(indices)
    assert ours.convert_ids_to_tokens(target_ids) == theirs.convert_ids_to_tokens(draft_ids)
    both = set(ours.get_vocab()) & set(theirs.get_vocab())
    assert len(indices) == len(both) > 1000
    assert len(set(target_ids)) == len(target_ids)


def test_a_text_reads_the_same_in_the_drafts_ids(tokenizers, shared):
    ours, theirs = tokenizers
    for prompt in specdec_zoo.prompts(8):
        ids = ours(prompt["prompt"], return_tensors="np")["input_ids"][0]
        draft_ids = shared.to_draft(ids)
        assert theirs.decode(draft_ids) == ours.decode(ids)
        assert shared.num_draft_ids(ids) == len(draft_ids) >= len(ids)


def test_logits_are_narrowed_and_spread_by_id(shared):
    logits = torch.randn(2, 4096)
    narrow = shared.restrict(logits)
    target_ids, draft_ids = shared.name([0, 5, 17])
    assert torch.equal(narrow[:, [0, 5, 17]], logits[:, draft_ids])
    wide = shared.spread(narrow)
    assert wide.shape == (2, 4096)
    assert torch.equal(wide[:, target_ids], narrow[:, [0, 5, 17]])
    assert (wide == -math.inf).sum() == 2 * (4096 - narrow.shape[1])
    assert shared.index_of(torch.tensor(target_ids)).tolist() == [0, 5, 17]


@pytest.mark.parametrize(("target", "draft"), [(5, 8), (8, 5), (6, 6)])
def test_unused_ids_at_the_end_are_never_drafted(target, draft):
    vocabulary = equal_vocabulary(target, draft, CPU)
    logits = torch.randn(1, draft)
    assert torch.equal(vocabulary.restrict(logits), logits[:, : min(target, draft)])
    assert vocabulary.spread(vocabulary.restrict(logits)).shape == (1, target)
    assert vocabulary.name([2]) == ([2], [2])


def test_a_draft_with_more_logits_than_tokens_is_taken(make_padded):
    config = {
        "method": "draft_model",
        "model": make_padded(4096 + 64),
        "num_speculative_tokens": 3,
        "on_proposer_error": "raise",
    }
    for method in ("strict", "probabilistic"):
        llm = LLM(
            model="zoo", dtype="float32", speculative_config=config | {"rejection_sample_method": method}
        )
        output = llm.generate("import os\n", SamplingParams(temperature=0.0, max_tokens=12))[0]
        assert output.metrics.num_draft_tokens > 0


def test_another_tokenizer_is_refused_with_sizes_and_the_first_ids_that_differ():
    folder = own_vocabulary_draft()
    config = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match=r"2048.*4096.*differ.*\d+: .* and .*use_heterogeneous_vocab"):
        LLM(model="zoo", dtype="float32", speculative_config=config)


def test_tokens_of_another_vocabulary_are_accepted():
    config = {
        "method": "draft_model",
        "model": own_vocabulary_draft(),
        "use_heterogeneous_vocab": True,
        "num_speculative_tokens": 4,
        "on_proposer_error": "raise",
    }
    llm = LLM(model="zoo", dtype="float32", speculative_config=config)
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(8)]
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True))
    drafted = sum(output.metrics.num_draft_tokens for output in outputs)
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0.4 * drafted > 80


def test_equal_sizes_with_other_tokens_are_refused_too(make_padded, tokenizers):
    folder = make_padded(4096, tokenizer=tokenizers[1])
    config = {"method": "draft_model", "model": folder, "num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match=r"not the target's.*4096.*differ.*use_heterogeneous_vocab"):
        LLM(model="zoo", dtype="float32", speculative_config=config)


def test_sizes_alone_decide_where_a_tokenizer_is_missing(make_draft):
    config = {"method": "draft_model", "model": make_draft(4000), "num_speculative_tokens": 3}
    with pytest.raises(ConfigError, match="4000 tokens, the target one of 4096"):
        LLM(model="zoo", dtype="float32", speculative_config=config)
