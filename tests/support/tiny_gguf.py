"""Tiny Llama models as GGUF files, written by llama.cpp's own `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPECIAL = ("<unk>", "<|im_start|>", "<|im_end|>", "<|end|>")
END, END_OF_TURN = 2, 3
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
TOKENS = [*SPECIAL, *bytes_to_unicode().values(), "th", "the", "ĠĠ"]
MERGES = ["t h", "th e", "Ġ Ġ"]
NUM_HEADS, NUM_KV_HEADS = 4, 2


def tiny_llama(seed: int = 0, num_hidden_layers: int = 2) -> LlamaForCausalLM:
    """Return a Llama with random weights, as the files that are written from it have it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_KV_HEADS,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        initializer_range=0.3,
        eos_token_id=END,
        rms_norm_eps=1e-5,
    )
    return LlamaForCausalLM(config).eval()


def write_gguf(
    path: Path,
    model: LlamaForCausalLM | None = None,
    *,
    architecture: str = "llama",
    kind: str | None = None,
    pre: str = "smollm",
    end_of_turn: int | None = END_OF_TURN,
    without: str | None = None,
    rope_factors: np.ndarray | None = None,
    rope_scaling: str | None = None,
) -> Path:
    """Write a model and its tokenizer, in float32 or in blocks.

    Args:
        path: the file.
        model: of `tiny_llama`, the default.
        architecture: what the file says it is.
        kind: type of the blocks that matrices are written in; None for float32.
        pre: how text is split, in llama.cpp's words.
        end_of_turn: its id; None leaves it out.
        without: a tensor that is left out.
        rope_factors: what rotary frequencies are divided by.
        rope_scaling: a kind of position scaling.
    """
    model = model or tiny_llama()
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // NUM_HEADS)
    writer.add_vocab_size(config.vocab_size)
    if rope_scaling is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope_scaling))
    _add_tokenizer(writer, pre, end_of_turn)
    tensors = dict(_tensors(model))
    if rope_factors is not None:
        tensors["rope_freqs.weight"] = rope_factors.astype(np.float32)
    blocks = None if kind is None else gguf.GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        if name == without:
            continue
        if blocks is not None and tensor.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(tensor, blocks), raw_dtype=blocks)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str, end_of_turn: int | None) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control] * len(SPECIAL) + [normal] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    if end_of_turn is not None:
        writer.add_eot_token_id(end_of_turn)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _tensors(model: LlamaForCausalLM) -> list[tuple[str, np.ndarray]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    found = []
    for key, value in model.state_dict().items():
        tensor = value.float().numpy()
        if key.endswith("q_proj.weight"):
            tensor = _interleaved(tensor, NUM_HEADS)
        if key.endswith("k_proj.weight"):
            tensor = _interleaved(tensor, NUM_KV_HEADS)
        name = names.get_name(key, try_suffixes=(".weight",))
        assert name is not None
        found.append((name, tensor))
    return found


def _interleaved(weights: np.ndarray, num_heads: int) -> np.ndarray:
    """Return weights with the rotary halves interleaved, as llama.cpp's converter writes those of Llama."""
    rows, columns = weights.shape
    halves = weights.reshape(num_heads, 2, rows // num_heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
