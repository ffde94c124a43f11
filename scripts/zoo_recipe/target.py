"""The zoo target as a model: configuration, training loss, mean loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_train.packing import micro_batches
from zoo_recipe.recipe import ModelShape


def target_config(shape: ModelShape, *, vocab_size: int, end_of_text: int) -> LlamaConfig:
    """Configuration of the target, which plain `transformers` loads.

    Args:
        shape: sizes.
        vocab_size: number of token ids.
        end_of_text: id that begins and ends a document.
    """
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.hidden_size // shape.num_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        attention_bias=False,
        mlp_bias=False,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
    )


def build_target(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A freshly initialised target in float32."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    model.train()
    return model


def next_token_loss(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Mean cross-entropy of each token given those before it, in nats.

    Args:
        model: the target.
        tokens: ids `[B, T + 1]`, without padding, so a causal mask is enough.
    """
    hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


@torch.no_grad()
def mean_loss(loss: Callable[[Tensor], Tensor], tokens: Tensor, micro_batch: int) -> float:
    """Mean loss over windows `[N, T + 1]`."""
    parts = micro_batches(tokens, micro_batch)
    return sum(loss(part).item() * len(part) for part in parts) / len(tokens)
