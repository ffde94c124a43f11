"""DFlash heads of all three exporters: layers of Qwen3, a block of mask tokens behind the target's states."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from exporter_heads.inputs import DRAFT_IDS, LAYER, MASK_ID, NUM_LAYERS, VOCAB, drawn, layer_keys
from exporter_heads.references import ExportedBlock
from exporter_heads.writing import Head

BLOCK_SIZE = 4
_INPUTS = (2, 4, 6)
"""The layers whose inputs most heads read."""
_WINDOW = {"use_sliding_window": True, "sliding_window": 5}
_MIXED = _WINDOW | {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
_OF_SPECULATORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dflash": ({}, {"draft_vocab_size": len(DRAFT_IDS)}),
    "dflash_window": (_MIXED, {}),
    "dflash_at_anchor": ({}, {"draft_vocab_size": len(DRAFT_IDS), "sample_from_anchor": True}),
}
_OF_MODELOPT: dict[str, dict[str, Any]] = {
    "dflash": {"dflash_architecture_config": {"num_hidden_layers": 2}},
    "dflash_window": {
        "dflash_architecture_config": {"num_hidden_layers": 1},
        "dflash_swa_window_size": 5, "dflash_draft_attention": "causal",
    },
}  # fmt: skip


class _OfSpeculators(ExportedBlock):
    """Its modules and masks, in the order of its `_backbone_forward`, with the last token as the only anchor."""

    def __init__(self, model: Any) -> None:
        super().__init__(_INPUTS, predicts_at_anchor=model.config.sample_from_anchor)
        self.model = model

    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        model, count, size = self.model, len(states), len(ids)
        # Its mask wants the anchor among the text's positions, and hides it there.
        fused = model.hidden_norm(model.fc(torch.cat((states, states[-1:]))[None]))
        positions = torch.cat((torch.arange(count + 1), count + torch.arange(size)))[None]
        rotary = model.rotary_emb(fused, positions)
        model.block_size = size
        document, anchor = torch.zeros(1, count + 1, dtype=torch.long), torch.tensor([count])
        x = model.embed_tokens(ids)[None]
        for index, layer in enumerate(model.layers):
            has_window = index in model.sliding_window_indices
            mask = model._create_attention_mask(
                document, count + 1, anchor, "cpu", *([model.sliding_window, False] if has_window else [])
            )
            x = layer(
                hidden_states=x,
                target_hidden=fused,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=rotary,
            )
        logits: Tensor = model.lm_head(model.norm(x))[0]
        return logits


class _OfModelOpt(ExportedBlock):
    """The `dflash_module` of a converted target, with the mask that it generates with."""

    def __init__(self, model: Any) -> None:
        super().__init__([layer + 1 for layer in model.target_layer_ids])
        self.model = model

    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        model, count, size = self.model, len(states), len(ids)
        model.dflash_block_size = size
        drafted = model.dflash_module(
            model._base_model_embeddings(ids)[None],
            states[None],
            torch.arange(count + size)[None],
            model._build_generate_swa_mask(count, 1, torch.float32, "cpu"),
        )
        logits: Tensor = model._base_model_lm_head(drafted)[0]
        return logits


class _OfSpecForge(ExportedBlock):
    """Its draft model and the masks that it is trained with, on the target's embedding and output projection."""

    def __init__(self, model: Any, target: LlamaForCausalLM) -> None:
        super().__init__([layer + 1 for layer in model.target_layer_ids])
        self.model, self.target = model, target
        self._mask = import_module("specforge.algorithms.common.dflash_family_model").create_dflash_sdpa_mask

    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        model, count, size = self.model, len(states), len(ids)
        kept = torch.tensor([[True]])
        masks = {
            kind: self._mask(torch.tensor([[count]]), kept, count, size, "cpu", sliding_window=window)
            for kind, window in (("full_attention", None), ("sliding_attention", model.sliding_window))
        }
        drafted = model(
            torch.arange(count + size)[None],
            attention_mask=masks,
            noise_embedding=self.target.model.embed_tokens(ids)[None],
            target_hidden=states[None],
        )
        logits: Tensor = self.target.lm_head(drafted)[0]
        return logits


def of_speculators(common: Any) -> Iterator[Head]:
    """Yield its heads; `common` is what its format says of every head."""
    made = import_module("speculators.models.dflash")
    for name, (layer, keys) in _OF_SPECULATORS.items():
        layers = Qwen3Config(**layer_keys() | {"num_hidden_layers": 1} | layer)
        layers._attn_implementation = "eager"
        torch.manual_seed(1)
        keys = {"draft_vocab_size": VOCAB, "block_size": BLOCK_SIZE, "mask_token_id": MASK_ID} | keys
        model = made.DFlashDraftModel(
            made.DFlashSpeculatorConfig(
                transformer_layer_config=layers,
                aux_hidden_state_layer_ids=list(_INPUTS),
                speculators_config=common,
                **keys,
            )
        )
        if model.use_draft_vocab:
            ids = torch.tensor(DRAFT_IDS)
            is_drafted = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
            model.load_vocab_mappings(is_drafted, ids - torch.arange(len(ids)))
        model.load_verifier_weights()
        kept = ("verifier", "embed_tokens") + (() if model.use_draft_vocab else ("lm_head",))
        drawn(model, 7, without=kept)
        model = model.float().eval()
        yield Head(f"speculators/{name}", "dflash", _OfSpeculators(model), partial(save, model))


def of_modelopt(target: Path) -> Iterator[Head]:
    """Yield its heads; `target` is the folder of theirs."""
    speculative = import_module("modelopt.torch.speculative")
    for name, keys in _OF_MODELOPT.items():
        settings = copy.deepcopy(import_module("modelopt.torch.speculative.config").DFLASH_DEFAULT_CFG)
        sizes = {key: LAYER[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")}
        keys = keys | {"dflash_mask_token_id": MASK_ID, "dflash_block_size": BLOCK_SIZE}
        keys["dflash_architecture_config"] = {
            **sizes, "intermediate_size": LAYER["intermediate_size"], **keys["dflash_architecture_config"]
        }  # fmt: skip
        model: Any = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        speculative.convert(model, [(settings["algorithm"], settings["config"] | keys)])
        drawn(model.dflash_module, 7)
        model.dflash_module.rotary_emb = Qwen3RotaryEmbedding(model.dflash_config)
        yield Head(f"modelopt/{name}", "dflash", _OfModelOpt(model.eval()), partial(save, model))


def of_specforge(target: Path) -> Iterator[Head]:
    """Yield its head."""
    kind = import_module("specforge.modeling.draft.dflash").DFlashDraftModel
    own: dict[str, Any] = {
        "architectures": [kind.__name__],
        "block_size": BLOCK_SIZE,
        "num_target_layers": NUM_LAYERS,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [layer - 1 for layer in _INPUTS]},
    }
    config = Qwen3Config(**layer_keys() | _MIXED | {"rope_theta": 10000.0} | own)
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    model = kind(config).float().eval()
    drawn(model, 7)
    read = _OfSpecForge(model, LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval())
    yield Head("specforge/dflash_window", "dflash", read, partial(save, model))


def save(model: Any, folder: Path) -> None:
    """Write a head as its exporter does."""
    if hasattr(model, "dflash_module"):
        del model.dflash_module.rotary_emb
        model.bfloat16().get_exporter().export(folder)
    else:
        model.bfloat16().save_pretrained(folder)
