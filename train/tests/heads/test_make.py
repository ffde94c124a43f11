"""What heads begin with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from specdec_plugin_mlp import MLPSpeculator
from specdec_train.heads.factored import merge
from specdec_train.heads.make import count_ids, frequent_ids, make_eagle3, num_covering
from specdec_train.heads.make_mlp import make_mlp
from specdec_train.heads.recipe import HEADS, for_answers
from specdec_train.optimizer import OptimizerPair


@torch.no_grad()
@pytest.mark.parametrize("has_bias", [False, True])
def test_some_attention_of_an_eagle3_head_reads_its_own_token(has_bias, target, documents):
    if has_bias:
        target.config.attention_bias = True
    head, config = make_eagle3(target, HEADS["eagle3"], documents)
    attention = head.body.layers[0].self_attn
    width, num_queries = attention.head_dim, 2
    tokens = torch.arange(1, 60)
    embedded = head.body.layers[0].input_layernorm(head.embed_tokens(tokens))
    entry = torch.cat((embedded, torch.randn(len(tokens), 32)), -1)
    queries, keys, values = (
        F.linear(entry, projection.weight, None if projection.bias is None else projection.bias)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    for query in range(num_queries):
        scores = queries[:, query * width : (query + 1) * width] @ keys[:, :width].T * width**-0.5
        assert scores.diagonal().mean() == pytest.approx(10.0, rel=0.2)
        assert scores.mean().abs() < 2.0
        assert (scores.argmax(1) == torch.arange(len(tokens))).float().mean() > 0.5
    read = values[:, :width].repeat(1, num_queries) @ attention.o_proj.weight[:, : num_queries * width].T
    again = F.linear(
        torch.cat((embedded, torch.randn(len(tokens), 32)), -1),
        attention.v_proj.weight,
        attention.v_proj.bias,
    )
    assert torch.allclose(again[:, :width], values[:, :width], atol=1e-6)
    # A head of 8 dimensions shows a quarter of the 32 of the embedding, which is half of its length.
    states = head.hidden_norm(torch.randn(100, 32))
    assert read.square().mean().sqrt() == pytest.approx(0.15 * states.square().mean().sqrt().item(), rel=0.25)
    assert config["norm_before_residual"] is True
    assert not attention.o_proj.weight[:, num_queries * width :].any()


@torch.no_grad()
@pytest.mark.parametrize("is_tied", [False, True])
def test_heads_twice_as_wide_begin_as_linear_maps(is_tied, target):
    heads = make_mlp(target, replace(HEADS["mlp"], inner_size=64, is_tied=is_tied))
    states, tokens = torch.randn(7, 32), torch.randint(0, 97, (7, 3))
    wide = heads(states, tokens)
    x = F.rms_norm(states, (32,)) / 2**0.5
    for index in range(3):
        x = x + heads.token_weight * heads.emb[index].weight[tokens[:, index], :32]
        x = F.rms_norm(x, (32,))
        expected = 0.5 * x @ target.lm_head.weight.T
        torch.testing.assert_close(wide[:, index], expected, rtol=1e-4, atol=1e-4)
        x = x / 2**0.5
    assert len({id(head) for head in heads.head}) == (1 if is_tied else 3)


@pytest.mark.parametrize("is_tied", [False, True])
def test_tables_learnt_as_maps_become_plain_ones(is_tied, target):
    heads = make_mlp(target, replace(HEADS["mlp"], inner_size=64, is_tied=is_tied))
    names = dict(MLPSpeculator(heads.layout).named_parameters())
    states, tokens = torch.randn(7, 32), torch.randint(0, 97, (7, 3))
    optimizer = OptimizerPair(heads, muon_lr=0.01, adamw_lr=0.001, weight_decay=0.0)
    learnt = dict(heads.named_parameters())
    muon, adamw = ({id(p) for p in o.param_groups[0]["params"]} for o in optimizer._optimizers)
    for name, parameter in learnt.items():
        is_matrix = name.endswith(".through") or name.startswith("proj.")
        assert id(parameter) in (muon if is_matrix else adamw)
    before = {name: parameter.detach().clone() for name, parameter in learnt.items()}
    heads(states, tokens).square().mean().backward()
    optimizer.step(1.0)
    assert not any(torch.equal(before[name], parameter) for name, parameter in learnt.items())
    expected = heads(states, tokens)
    merge(heads)
    assert {name: p.shape for name, p in heads.named_parameters()} == {n: p.shape for n, p in names.items()}
    torch.testing.assert_close(heads(states, tokens), expected)
    merge(heads)  # nothing is left to do


def test_a_draft_vocabulary_has_the_most_frequent_ids_that_cover_enough():
    counts = count_ids([[5] * 90, [3] * 6 + [7] * 3, [1]], 1000)
    assert counts[[1, 3, 5, 7]].tolist() == [1, 6, 90, 3]
    assert frequent_ids(counts, 3).tolist() == [3, 5, 7]
    assert num_covering(counts, 0.98) == 128  # three ids, and a multiple of 128
    assert num_covering(counts[:100], 0.98) == 100  # all that there are
    even = torch.ones(1000, dtype=torch.int64)
    assert num_covering(even, 0.5) == 512
    assert num_covering(even, 1.0) == 1000


def test_a_head_for_answers_names_as_many_ids_as_cover_them(target):
    recipe = for_answers(HEADS["eagle3"], has_limit=False)
    head, config = make_eagle3(target, recipe, [[index % 13 for index in range(500)]])
    assert head.target_ids is None  # 97 ids are fewer than 128
    assert config["draft_vocab_size"] == 97
    with pytest.raises(ValueError, match="cannot both be set"):
        replace(recipe, draft_vocab_size=50)
