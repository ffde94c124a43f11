"""A DFlash head of z-lab's own package, in the classes that its published heads are run with.

`dflash_generate` gives a block no mask: its rows see each other and all of the text before them.
"""

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
    """Its draft model on the target's embedding and output projection."""

    def __init__(self, model: Any, target: LlamaForCausalLM) -> None:
        super().__init__([layer + 1 for layer in model.target_layer_ids])
        self.model, self.target = model, target

    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        drafted = self.model(
            position_ids=torch.arange(len(states) + len(ids))[None],
            noise_embedding=self.target.model.embed_tokens(ids)[None],
            target_hidden=states[None],
        )
        final: Tensor = drafted[0]
        return final

    def project(self, states: Tensor, before: Tensor) -> Tensor:
        logits: Tensor = self.target.lm_head(states)
        return logits


def heads(target: Path) -> Iterator[Head]:
    """Yield the head; `target` is the folder of its target. Its layers are those that the package spreads by itself."""
    stubs.use("zlab")
    kind = import_module("dflash.model").DFlashDraftModel
    own: dict[str, Any] = {
        "block_size": dflash.BLOCK_SIZE,
        "num_target_layers": NUM_LAYERS,
        "dflash_config": {"mask_token_id": MASK_ID},
    }
    config = Qwen3Config(**layer_keys(num_hidden_layers=2), **own)
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    model = kind(config).float().eval()
    drawn(model, 7)
    read = _Block(model, LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval())
    yield Head("zlab/dflash", "dflash", read, partial(dflash.save, model))
