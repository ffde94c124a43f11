"""Tensor names of DFlash heads: as published, and in the module here."""

from __future__ import annotations

import re

_PREFIXES = re.compile(r"^(?:module\.|model\.|draft_model\.|logit_head\.|stage\.)+")
_STAGES = "markov_head|confidence_head|prefix_gru|embed_proj|candidate_selector|refiner_head"
_TO_MODULE = (
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^layers\.(\d+)\.(attention|mlp)_conv\."), r"convolutions.\1.\2."),
    (re.compile(rf"^({_STAGES})\."), r"stage.\1."),
    (re.compile(r"^(layers\.|norm\.|embed_tokens\.)"), r"model.model.\1"),
    (re.compile(r"^lm_head\."), "model.lm_head."),
    (re.compile(r"^draft_id_to_target_id$"), "d2t"),
)
_CONVOLUTIONS = re.compile(r"^convolutions\.(\d+)\.(\w+)\.")
_UNUSED = re.compile(r"^t2d$|rotary_emb\.inv_freq$|^verifier_(?:norm|lm_head)\.")
"""What training leaves there."""


def module_name(name: str) -> str:
    """Return the name of a published tensor in `DFlashHead`; `d2t` keeps its name."""
    name = _PREFIXES.sub("", name)
    for pattern, replacement in _TO_MODULE:
        name = pattern.sub(replacement, name)
    return name


def is_used(name: str) -> bool:
    """Return whether a published tensor is part of the head."""
    return not _UNUSED.search(_PREFIXES.sub("", name))


def published_name(name: str) -> str:
    """Return the name of a tensor of `DFlashHead` in published files."""
    return _CONVOLUTIONS.sub(r"layers.\1.\2_conv.", _PREFIXES.sub("", name))
