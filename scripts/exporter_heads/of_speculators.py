"""Heads of speculators 0.9.0: EAGLE-3 and P-EAGLE, over layers of Llama and Qwen3, DFlash and its relatives, and multi-token
prediction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, PretrainedConfig, Qwen3_5TextConfig, Qwen3Config

from exporter_heads import dflash, stubs
from exporter_heads.inputs import DRAFT_IDS, MASK_ID, NUM_LAYERS, VOCAB, drawn, layer_keys
from exporter_heads.references import ExportedChain
from exporter_heads.writing import Head

_WINDOW = {"sliding_window": 5, "layer_types": ["sliding_attention"]}
_QWEN_WINDOW = _WINDOW | {"use_sliding_window": True}
_EAGLE3: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama_normed_residual": {"norm_before_residual": True},
    "llama_norm_before_fc": {"norm_before_fc": True},
    "llama_3_1": {"fc_norm": True, "norm_output": True},
    "llama_all_ids": {"is_reduced": False},
    "llama_five_states": {"aux": (0, 2, 4, 6, 8)},
    "llama_window": {"layer": _WINDOW},
    "llama_attention_bias": {"layer": {"attention_bias": True}},
    "qwen3": {"kind": "qwen3"},
    "qwen3_3_1_two_layers": {
        "kind": "qwen3", "num_layers": 2, "norm_before_residual": True, "fc_norm": True, "norm_output": True,
    },
    "qwen3_window_not_used": {"kind": "qwen3", "layer": _QWEN_WINDOW | {"use_sliding_window": False}},
    "qwen3_one_window": {
        "kind": "qwen3", "num_layers": 2,
        "layer": _QWEN_WINDOW | {"layer_types": ["sliding_attention", "full_attention"]},
    },
}  # fmt: skip
_P_EAGLE: dict[str, dict[str, Any]] = {
    "peagle": {"mask_token_id": MASK_ID},
}


class SpeculatorsMtp(ExportedChain):
    """One layer of multi-token prediction, on the output of the target's last layer."""

    def __init__(self, model: Any) -> None:
        super().__init__((NUM_LAYERS,))
        self.model = model

    def feature(self, states: list[Tensor]) -> Tensor:
        """Return the state."""
        return states[0]

    def run(self, ids: list[int], features: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Run the layer over rows."""
        model, count, features = self.model, len(ids), features[None]
        positions = torch.arange(count)[None]
        rotated = positions
        if "qwen3_5" in model.config.transformer_layer_config.model_type:
            rotated = positions[None].expand(3, -1, -1)
        states = model.mtp_layers[0](
            hidden_states=features,
            token_embeddings=model.embed_tokens(torch.tensor(ids))[None],
            attention_mask=torch.full((1, 1, count, count), torch.finfo(torch.float32).min).triu(1),
            position_ids=positions,
            position_embeddings=model.rotary_emb(features, rotated),
        )
        return model.lm_head(states)[0], states[0]


class SpeculatorsHead(ExportedChain):
    """EAGLE-3's modules, in the order of their `forward`."""

    def __init__(self, model: Any, layers: tuple[int, ...]) -> None:
        super().__init__(layers)
        self.model = model

    def feature(self, states: list[Tensor]) -> Tensor:
        """Return the fused states."""
        model, joined = self.model, torch.cat(states, -1)
        if model.input_norm is not None:
            joined = model.input_norm(joined)
        if model.fc_norm is not None:
            parts = joined.chunk(len(model.fc_norm), -1)
            joined = torch.cat([norm(part) for norm, part in zip(model.fc_norm, parts, strict=True)], -1)
        fused: Tensor = model.fc(joined)
        return fused

    def run(self, ids: list[int], features: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Run its layers over rows."""
        model, count = self.model, len(ids)
        states = torch.cat([model.embed_tokens(torch.tensor(ids))[None], features[None]], -1)
        positions = torch.arange(count)[None]
        rotary = model.rotary_emb(states, positions)
        one_text = torch.zeros(count, dtype=torch.long)
        full = model._build_attn_mask(one_text, count, "cpu")
        windowed = full
        if model.uses_sliding_window_attn:
            windowed = model._build_attn_mask(one_text, count, "cpu", model.sliding_window)
        for index, layer in enumerate(model.layers):
            states = layer(
                states,
                attention_mask=windowed if index in model.sliding_window_indices else full,
                position_ids=positions,
                past_key_values=None,
                position_embeddings=rotary,
            )
        normed = model.norm(states)
        return model.lm_head(normed)[0], (normed if model.config.norm_output else states)[0]


def heads(target: Path) -> Iterator[Head]:
    """Yield all heads; `target` is the folder of theirs."""
    stubs.use("speculators")
    for name, keys in _EAGLE3.items():
        yield _eagle3(name, target, **keys)
    for name, keys in _P_EAGLE.items():
        yield _eagle3(name, target, **keys)
    yield from dflash.of_speculators(partial(_common, target=target))
    yield _mtp("mtp_qwen3", target, Qwen3Config(**layer_keys(num_hidden_layers=NUM_LAYERS)))
    kinds = ["linear_attention"] * (NUM_LAYERS - 1) + ["full_attention"]
    yield _mtp(
        "mtp_qwen3_5",
        target,
        Qwen3_5TextConfig(**layer_keys(layer_types=kinds, num_hidden_layers=NUM_LAYERS)),
    )


def _eagle3(
    name: str,
    target: Path,
    *,
    kind: str = "llama",
    num_layers: int = 1,
    is_reduced: bool = True,
    layer: dict[str, Any] | None = None,
    aux: tuple[int, ...] = (2, 4, 5),
    mask_token_id: int | None = None,
    **habits: bool,
) -> Head:
    layers = {"llama": LlamaConfig, "qwen3": Qwen3Config}[kind](
        **layer_keys() | {"num_hidden_layers": num_layers} | (layer or {})
    )
    layers._attn_implementation = "eager"
    if mask_token_id is None:
        module, algorithm, more = import_module("speculators.models.eagle3"), "eagle3", {}
        made, settings = module.Eagle3DraftModel, module.Eagle3SpeculatorConfig
    else:
        algorithm, more = "peagle", {"mask_token_id": mask_token_id}
        made = import_module("speculators.models.peagle.core").PEagleDraftModel
        settings = import_module("speculators.models.peagle.config").PEagleSpeculatorConfig
    torch.manual_seed(1)
    model = made(
        settings(
            transformer_layer_config=layers,
            draft_vocab_size=len(DRAFT_IDS) if is_reduced else VOCAB,
            eagle_aux_hidden_state_layer_ids=list(aux),
            speculators_config=_common(algorithm, target),
            **habits,
            **more,
        )
    )
    if is_reduced:
        ids = torch.tensor(DRAFT_IDS)
        is_drafted = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
        model.load_vocab_mappings(is_drafted, ids - torch.arange(len(ids)))
    model.load_verifier_weights()
    drawn(model, 7, without=("verifier", "embed_tokens"))
    model = model.float().eval()
    read = SpeculatorsHead(model, aux)
    mask = None
    if mask_token_id is not None:
        mask = (mask_token_id, read.feature(list(model.mask_hidden[0].detach().chunk(3, -1))).detach())

    def save(folder: Path) -> None:
        model.bfloat16().save_pretrained(folder)

    return Head(f"speculators/{name}", "eagle3", read, save, mask=mask)


def _mtp(name: str, target: Path, config: PretrainedConfig) -> Head:
    config._attn_implementation = "eager"
    settings = import_module("speculators.models.mtp.config").MTPSpeculatorConfig
    torch.manual_seed(1)
    model = import_module("speculators.models.mtp.core").MTPDraftModel(
        settings(transformer_layer_config=config, speculators_config=_common("mtp", target))
    )
    model.load_verifier_weights()
    drawn(model, 7, without=("embed_tokens", "lm_head"))
    model = model.float().eval()

    def save(folder: Path) -> None:
        model.bfloat16().save_pretrained(folder)

    return Head(f"speculators/{name}", "mtp", SpeculatorsMtp(model), save)


def _common(algorithm: str, target: Path) -> Any:
    """Return what the format says of every head."""
    config = import_module("speculators.config")
    greedy = import_module("speculators.proposals.greedy").GreedyTokenProposalConfig
    return config.SpeculatorsConfig(
        algorithm=algorithm,
        proposal_methods=[greedy(speculative_tokens=3)],
        default_proposal_method="greedy",
        verifier=config.VerifierConfig.from_pretrained(str(target)),
    )
