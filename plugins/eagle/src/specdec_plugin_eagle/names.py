"""Tensor names of EAGLE heads: in published checkpoints, in the speculators format, and in the modules here."""

from __future__ import annotations

import re

_PREFIXES = re.compile(r"^(?:module\.|model\.)+")
_TO_MODULE = (
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^transformer\."), "layers.0."),
    (re.compile(r"^fusion_fc\."), "fc."),
    (re.compile(r"^layers\.0\.hidden_norm\."), "hidden_norm."),
    (re.compile(r"^draft_id_to_target_id$"), "d2t"),
)
_NEW_SPELLINGS = {"fc_norm": "fc_norms", "input_norm": "fc_input_norm", "norm_before_fc": "fc_input_norm"}
_NORMS = {"fc_norms": "fc_norm", "fc_input_norm": "input_norm"}
_OLD_SPECULATORS = (
    (re.compile(r"^layers\.0\."), "transformer."),
    (re.compile(r"^fc\."), "fusion_fc."),
)
_UNUSED = re.compile(r"^t2d$|rotary_emb\.inv_freq$")


def module_name(name: str) -> str:
    """Return the name of a published tensor in the modules of this package; `d2t` and the embedding keep their names."""
    name = _PREFIXES.sub("", name)
    for pattern, replacement in _TO_MODULE:
        name = pattern.sub(replacement, name)
    head, dot, rest = name.partition(".")
    name = _NEW_SPELLINGS.get(head, head) + dot + rest
    return f"body.{name}" if name.startswith("layers.") else name


def is_used(name: str) -> bool:
    """Return whether a published tensor is part of the head."""
    return not _UNUSED.search(_PREFIXES.sub("", name))


def published_name(name: str, *, is_eagle3: bool) -> str:
    """Return the name of a tensor in the papers' repositories."""
    return re.sub(r"^layers\.0\.", "midlayer.", _plain(name)) if is_eagle3 else _plain(name)


def speculators_name(name: str, *, is_eagle3: bool) -> str:
    """Return the name of a tensor in the speculators library."""
    name = _plain(name)
    if not is_eagle3:
        for pattern, replacement in _OLD_SPECULATORS:
            name = pattern.sub(replacement, name)
    return name


def _plain(name: str) -> str:
    """Return the name that both dialects share."""
    name = name.removeprefix("body.")
    name = re.sub(r"^hidden_norm\.", "layers.0.hidden_norm.", name)
    head, dot, rest = name.partition(".")
    return _NORMS.get(head, head) + dot + rest
