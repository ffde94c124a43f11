"""A DSpark head of DeepSpec at afdfa7c, in the class that its published heads are run with, and in their layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, Qwen3Config

from exporter_heads import dflash, stubs
from exporter_heads.inputs import MASK_ID, NUM_LAYERS, drawn, layer_keys
from exporter_heads.references import ExportedBlock
from exporter_heads.writing import Head


class _Block(ExportedBlock):
    """Its draft model, which has copies of the target's embedding and output projection."""

    def __init__(self, model: Any) -> None:
        super().__init__([layer + 1 for layer in model.target_layer_ids], predicts_at_anchor=True)
        self.model = model

    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        drafted = self.model._forward_backbone(
            position_ids=torch.arange(len(states) + len(ids))[None],
            noise_embedding=self.model.embed_tokens(ids)[None],
            target_hidden_states=states[None],
            is_causal=False,
        )
        return drafted[0]  # type: ignore[no-any-return]  # its modules are not typed

    def project(self, states: Tensor, before: Tensor) -> Tensor:
        base = self.model.compute_logits(states)[None, None]
        logits: Tensor = self.model.markov_head.apply_block_logits(
            base, token_ids=before[None, None], hidden_states=states[None, None]
        )
        return logits[0, 0]

    def accepted(self, states: Tensor, before: Tensor) -> Tensor | None:
        probs: Tensor = self.model.predict_confidence_step(states, before).sigmoid()
        return probs


def heads(target: Path) -> Iterator[Head]:
    """Yield the head; `target` is the folder of its target, which it copies the vocabulary's weights of."""
    stubs.use("deepspec")
    kind = import_module("deepspec.modeling.dspark.qwen3.modeling").Qwen3DSparkModel
    own: dict[str, Any] = {
        "architectures": [kind.__name__],
        "block_size": dflash.BLOCK_SIZE,
        "num_target_layers": NUM_LAYERS,
        "num_anchors": 8,
        "mask_token_id": MASK_ID,
        "target_layer_ids": [-1, 3],
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "markov_rank": 4,
        "markov_head_type": "vanilla",
    }
    config = Qwen3Config(**layer_keys(num_hidden_layers=1), **own)
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    model = kind(config).float().eval()
    drawn(model, 7)
    theirs = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32)
    model.initialize_embeddings_and_head(embed_tokens=theirs.model.embed_tokens, lm_head=theirs.lm_head)
    yield Head("deepspec/dspark", "dflash", _Block(model), partial(dflash.save, model))
