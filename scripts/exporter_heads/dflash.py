"""DFlash heads of all three exporters, and their relatives: layers of Qwen3, a block of masks behind the target's states."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
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
_REDUCED = {"draft_vocab_size": len(DRAFT_IDS)}
_OF_SPECULATORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dflash": ({}, _REDUCED),
    "dflash_window": (_MIXED, {}),
    "dflash_at_anchor": ({}, _REDUCED | {"sample_from_anchor": True}),
    "dspark": ({}, _REDUCED | {"markov_rank": 4, "markov_head_type": "gated"}),
    "dspark_bonus_anchor": (
        {},
        {
            "markov_rank": 4,
            "markov_head_type": "rnn",
            "sample_from_anchor": False,
            "confidence_head_with_markov": False,
        },
    ),
    "dflash2": (
        {},
        {"conv_kernel_size": 3, "conv_group_size": 4, "selector_rank": 4, "selector_top_k": 24},
    ),
    "xpress": ({}, _REDUCED | {"xpress_rank": 4}),
    "xpress_at_anchor": ({}, _REDUCED | {"xpress_rank": 4, "sample_from_anchor": True}),
}
"""By name, which begins with that of the method: keys of the layers, and of the head."""
_OF_SPECFORGE: dict[str, dict[str, Any]] = {
    "dflash_window": {},
    "dspark": {"markov_rank": 4, "confidence_head_alpha": 1.0, "confidence_head_with_markov": True},
    "domino": {"emb_dim": 6, "gru_hidden_dim": 4},
    "domino_shifted": {"emb_dim": 6, "gru_hidden_dim": 4, "shift_label": True, "pure_draft_prefix_len": 1},
}
_CLASSES = {
    "dflash": "DFlash",
    "dflash2": "DFlash2",
    "domino": "Domino",
    "dspark": "DSpark",
    "xpress": "XPress",
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
        num_rows = BLOCK_SIZE if hasattr(model, "refiner_head") else None
        super().__init__(_INPUTS, predicts_at_anchor=model.config.sample_from_anchor, num_rows=num_rows)
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
                document,
                count + 1,
                anchor,
                "cpu",
                *([model.sliding_window, model.sliding_window_non_causal] if has_window else []),
            )
            x = layer(
                hidden_states=x,
                target_hidden=fused,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=rotary,
            )
        final: Tensor = model.norm(x)[0]
        return final

    def project(self, states: Tensor, before: Tensor) -> Tensor:
        model = self.model
        logits: Tensor = model.lm_head(states)
        if hasattr(model, "refiner_head"):
            logits += model.refiner_head.block_bias(before[None], hidden_states=states[None])[0]
            return logits
        if not self.predicts_at_anchor:  # the others give the anchor's row the anchor itself
            before = torch.cat((before[1:2], before[1:]))
        if hasattr(model, "candidate_selector"):
            ids, scores = model.candidate_selector.select(logits[None], states[None], before[None])
            return torch.full_like(logits, -torch.inf).scatter(-1, ids[0], scores[0])
        if hasattr(model, "markov_head"):
            logits += model.markov_head.block_bias(prev_token_ids=before[None], hidden_states=states[None])[0]
        return logits

    def accepted(self, states: Tensor, before: Tensor) -> Tensor | None:
        model = self.model
        if not hasattr(model, "confidence_head"):
            return None
        if model.config.confidence_head_with_markov:
            states = torch.cat((states, model.markov_head.prev_embeddings(before)), -1)
        probs: Tensor = model.confidence_head(states).sigmoid()
        return probs


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
        final: Tensor = drafted[0]
        return final

    def project(self, states: Tensor, before: Tensor) -> Tensor:
        logits: Tensor = self.model._base_model_lm_head(states)
        return logits


class _OfSpecForge(ExportedBlock):
    """Its draft model and the masks that it is trained with, on the target's embedding and output projection."""

    def __init__(self, model: Any, target: LlamaForCausalLM) -> None:
        # Domino says so; DSpark is trained so, and only the loop for a look at it reads later rows.
        is_shifted = model.shift_label or model.projector_type == "dspark"
        super().__init__([layer + 1 for layer in model.target_layer_ids], predicts_at_anchor=is_shifted)
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
        final: Tensor = drafted[0]
        return final

    def project(self, states: Tensor, before: Tensor) -> Tensor:
        # Without `shift_label` Domino's rows are given the tokens that they predict, and look at those before.
        given = before if self.predicts_at_anchor else torch.cat((before[1:], before[:1]))
        logits: Tensor = self.model.apply_logits_head(
            self.target.lm_head(states)[None, None],
            prev_token_ids=before[None, None],
            prev_token_embeddings=self.target.model.embed_tokens(given)[None, None],
            hidden_states=states[None, None],
        )[0, 0]
        return logits

    def accepted(self, states: Tensor, before: Tensor) -> Tensor | None:
        logits: Tensor | None = self.model.predict_confidence(states, prev_token_ids=before)
        return None if logits is None else logits.sigmoid()


def of_speculators(common: Callable[[str], Any]) -> Iterator[Head]:
    """Yield its heads; `common` gives what its format says of every head of a method."""
    for name, (layer, keys) in _OF_SPECULATORS.items():
        method = name.split("_")[0]
        made = import_module(f"speculators.models.{method}")
        layers = Qwen3Config(**layer_keys() | {"num_hidden_layers": 1} | layer)
        layers._attn_implementation = "eager"
        torch.manual_seed(1)
        keys = {"draft_vocab_size": VOCAB, "block_size": BLOCK_SIZE, "mask_token_id": MASK_ID} | keys
        model = getattr(made, f"{_CLASSES[method]}DraftModel")(
            getattr(made, f"{_CLASSES[method]}SpeculatorConfig")(
                transformer_layer_config=layers,
                aux_hidden_state_layer_ids=list(_INPUTS),
                speculators_config=common(method),
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
    """Yield its heads."""
    for name, keys in _OF_SPECFORGE.items():
        method = name.split("_")[0]
        kind = getattr(import_module(f"specforge.modeling.draft.{method}"), f"{_CLASSES[method]}DraftModel")
        inner = {"mask_token_id": MASK_ID, "target_layer_ids": [layer - 1 for layer in _INPUTS]}
        own: dict[str, Any] = {
            "architectures": [kind.__name__],
            "block_size": BLOCK_SIZE,
            "num_target_layers": NUM_LAYERS,
            "dflash_config": inner | keys,
        }
        layers = _MIXED if method == "dflash" else {"num_hidden_layers": 1}
        config = Qwen3Config(**layer_keys() | layers | {"rope_theta": 10000.0} | own)
        config._attn_implementation = "sdpa"
        torch.manual_seed(1)
        model = kind(config).float().eval()
        drawn(model, 7)
        read = _OfSpecForge(model, LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval())
        yield Head(f"specforge/{name}", "dflash", read, partial(save, model))


def save(model: Any, folder: Path) -> None:
    """Write a head as its exporter does."""
    if hasattr(model, "dflash_module"):
        del model.dflash_module.rotary_emb
        model.bfloat16().get_exporter().export(folder)
    else:
        model.bfloat16().save_pretrained(folder)
