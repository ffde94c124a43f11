"""EAGLE-3, P-EAGLE and DFlash heads of SpecForge at a6b6b023.

It counts outputs of layers, `[1, n / 2 - 1, n - 4]` by default. Its `compute_logits` norms the output if `norm_output` is set,
and its backbone passes the unnormed state on in any case, which was mended on 15 September 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from transformers import LlamaConfig

from exporter_heads import dflash, stubs
from exporter_heads.inputs import DRAFT_IDS, MASK_ID, VOCAB, drawn, layer_keys
from exporter_heads.references import ExportedChain
from exporter_heads.writing import Head

_NESTED = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 6], "use_aux_hidden_state": True}}
_EAGLE3: dict[str, tuple[dict[str, Any], tuple[int, ...], dict[str, Any]]] = {
    "eagle3": ({}, (2, 4, 5), {}),
    "eagle3_nested_layers": (_NESTED, (1, 4, 7), {}),
    "eagle3_normed_output": ({"fc_norm": True, "norm_output": True}, (2, 4, 5), {"norm_output": False}),
    "eagle3_attention_bias": ({"attention_bias": True}, (2, 4, 5), {}),
}


def _is_before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


class SpecForgeHead(ExportedChain):
    """The draft model of SpecForge."""

    def __init__(self, model: Any, layers: tuple[int, ...]) -> None:
        super().__init__(layers)
        self.model = model
        self._mask = import_module("specforge.modeling.draft.llama3_eagle").prepare_decoder_attention_mask

    def feature(self, states: list[Tensor]) -> Tensor:
        """Return the fused states."""
        fused: Tensor = self.model.project_hidden_states(torch.cat(states, -1)[None])[0]
        return fused

    def run(self, ids: list[int], features: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Run its layers over rows."""
        count, features = len(ids), features[None]
        if hasattr(self.model, "mask_hidden"):
            mask: Any = create_block_mask(_is_before, None, None, count, count, device="cpu")
        else:
            mask = self._mask(torch.ones(1, count, dtype=torch.bool), (1, count), features, 0)
        embedded = self.model.embed_input_ids(torch.tensor(ids)[None])
        states = self.model.backbone(embedded, features, None, mask, torch.arange(count)[None], None, False)
        return self.model.compute_logits(states)[0], states[0]


def heads(target: Path) -> Iterator[Head]:
    """Yield all heads; `target` is the folder of theirs, which most know by its sizes alone."""
    stubs.use("specforge")
    draft = "specforge.modeling.draft"
    for name, (keys, layers, overrides) in _EAGLE3.items():
        kind = import_module(f"{draft}.llama3_eagle").LlamaForCausalLMEagle3
        yield _head(name, kind, layers, overrides, **keys)
    yield _head(
        "peagle", import_module(f"{draft}.peagle").PEagleDraftModel, (2, 4, 5), {}, num_hidden_layers=2
    )
    yield from dflash.of_specforge(target)


def _head(name: str, kind: Any, layers: tuple[int, ...], overrides: dict[str, Any], **keys: Any) -> Head:
    torch.manual_seed(1)
    known = {
        "num_hidden_layers": 1,
        "draft_vocab_size": len(DRAFT_IDS),
        "pad_token_id": 0,
        "rope_theta": 10000.0,
    }
    model = (
        kind(LlamaConfig(**layer_keys() | known | {"architectures": [kind.__name__]} | keys)).float().eval()
    )
    drawn(model, 7)
    ids = torch.tensor(DRAFT_IDS)
    model.d2t.copy_(ids - torch.arange(len(ids)))
    model.t2d.copy_(torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True))
    read = SpecForgeHead(model, layers)
    mask = None
    if hasattr(model, "mask_hidden"):
        feature = model.mask_hidden.detach().reshape(1, -1)
        mask = (MASK_ID, read.feature(list(feature.chunk(3, -1))).detach())
        overrides = {"mask_token_id": MASK_ID}

    def save(folder: Path) -> None:
        model.bfloat16().save_pretrained(folder)

    return Head(f"specforge/{name}", "eagle3", read, save, mask=mask, keys=overrides)
