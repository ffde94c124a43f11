"""A target that counts in a circle, and assistants that are right if they get the right states, rows and positions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.gemma4.modeling_gemma4 import apply_rotary_pos_emb

from mtp_check.assistants import Pair, all_shared

PERIOD, _SIZE = 24, 32
_CONSTANT = _SIZE - 1
"""The number of a state that is the same for every token."""
MOST = 7
"""Tokens of a draft that an assistant which reads rows gets right."""
_STRENGTH = 20.0
_ROPE = {"rope_type": "default", "rope_theta": 100.0}
_LAYERS = ["sliding_attention", "full_attention"]


def circle(start: int, length: int) -> list[int]:
    """Return what the target writes from a token on."""
    return [(start + place) % PERIOD for place in range(length)]


def make_circle(folder: Path, window: int = PERIOD - 2) -> Pair:
    """Write the target, whose rows all have the same key and the token as value, and an assistant without a function."""
    pair = Pair(folder / "target", folder / "assistant")
    known: dict[str, Any] = {
        "vocab_size": PERIOD, "hidden_size": _SIZE, "intermediate_size": 4, "num_hidden_layers": 2, "layer_types": _LAYERS,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": _SIZE, "global_head_dim": _SIZE, "pad_token_id": 0,
        "sliding_window": window, "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": None,
        "rope_parameters": dict.fromkeys(_LAYERS, _ROPE), "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
    }  # fmt: skip
    target: Any = AutoModelForCausalLM.from_config(hf.Gemma4TextConfig(**known, tie_word_embeddings=False))
    with torch.no_grad(), all_shared():
        _silence(target)
        for layer in target.model.layers:
            layer.self_attn.k_proj.weight[:, _CONSTANT] = 1.0
            layer.self_attn.v_proj.weight[:PERIOD, :PERIOD] = torch.eye(PERIOD)
            layer.self_attn.k_norm.weight.fill_(6.0)
        target.model.embed_tokens.weight.copy_(_tokens(0))
        target.lm_head.weight.copy_(_tokens(-1))
        target.save_pretrained(pair.target)
        config = hf.Gemma4AssistantConfig(
            text_config=hf.Gemma4TextConfig(**known), backbone_hidden_size=_SIZE
        )
        assistant = AutoModelForCausalLM.from_config(config)
        _silence(assistant)
        assistant.save_pretrained(pair.assistant)
    return pair


def read_states(pair: Pair) -> Pair:
    """Have the assistant read states alone: the one of the token before the last, and then what it made of it."""
    return _changed(pair, _count)


def read_rows(pair: Pair, kind: str, shift: int = 0, *, is_state_first: bool = False) -> Pair:
    """Have the assistant find the row one period before the token to come, in layers of a kind.

    Args:
        pair: the target and an assistant without a function.
        kind: the kind of layers.
        shift: how far before the last token's position it has to be asked.
        is_state_first: whether it expects the state before the token.
    """
    return _changed(
        pair, lambda model: _look_back(model, _LAYERS.index(kind), shift, is_state_first=is_state_first)
    )


def _changed(pair: Pair, change: Any) -> Pair:
    with torch.no_grad(), all_shared():
        model = AutoModelForCausalLM.from_pretrained(pair.assistant, dtype=torch.float32)
        change(model)
        model.save_pretrained(pair.assistant)
    return pair


def _count(model: Any) -> None:
    model.pre_projection.weight[:, _SIZE:] = torch.eye(_SIZE)
    model.lm_head.weight.copy_(_tokens(-2))
    following = torch.zeros(_SIZE, _SIZE)
    following[_CONSTANT, _CONSTANT] = 1.0
    for token in range(PERIOD):
        following[(token + 1) % PERIOD, token] = 1.0
    model.post_projection.weight.copy_(following)


def _look_back(model: Any, layer: int, shift: int, *, is_state_first: bool) -> None:
    embedded, state = model.pre_projection.weight.chunk(2, 1)[:: -1 if is_state_first else 1]
    embedded.copy_(torch.eye(_SIZE))
    model.lm_head.weight.copy_(_tokens(0))
    attention = model.model.layers[layer].self_attn
    model.model.layers[layer].post_attention_layernorm.weight.fill_(_STRENGTH)
    attention.q_norm.weight.fill_(6.0)
    attention.o_proj.weight.copy_(torch.eye(_SIZE))
    # From the last token's position the token to come is one less than a period behind itself; a mark in the state, which the
    # assistant's final norm makes smaller, says of each later token of a draft that it is one nearer.
    places = torch.arange(1 + shift - PERIOD, 1 + shift - PERIOD + MOST)[None]
    cos, sin = model.model.rotary_emb(torch.zeros(1, 1, _SIZE), places, _LAYERS[layer])
    queries = apply_rotary_pos_emb(torch.ones(1, MOST, 1, _SIZE), cos, sin, unsqueeze_dim=2)[0, :, 0]
    attention.q_proj.weight[:, _CONSTANT] = queries[0]
    for number, (query, after) in enumerate(pairwise(queries), 1):
        attention.q_proj.weight[:, _CONSTANT - number] = after - query
        model.post_projection.weight[_CONSTANT - number, _CONSTANT - number + 1] = _STRENGTH
        state[_CONSTANT - number, _CONSTANT - number] = 1.0


def _silence(model: Any) -> None:
    """Make layers that add nothing, and norms that only scale."""
    for name, weight in model.named_parameters():
        weight.fill_(1.0 if "norm" in name else 0.0)


def _tokens(ahead: int) -> Tensor:
    """Return `[V, H]`: of every token the direction of the token so far ahead, and the constant."""
    rows = torch.zeros(PERIOD, _SIZE)
    rows[torch.arange(PERIOD), (torch.arange(PERIOD) + ahead) % PERIOD] = 1.0
    rows[:, _CONSTANT] = 1.0
    return rows
