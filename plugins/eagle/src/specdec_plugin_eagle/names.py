"""What tensors of EAGLE heads are called: the published names, and those of the modules here."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PREFIXES = re.compile(r"^(?:module\.|model\.)+")
_TO_MODULE = (
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^transformer\."), "layers.0."),
    (re.compile(r"^fusion_fc\."), "fc."),
    (re.compile(r"^pre_lm_head_layernorm\."), "hidden_states_layernorm."),
    (re.compile(r"^layers\.0\.hidden_norm\."), "hidden_norm."),
    (re.compile(r"^draft_id_to_target_id$"), "d2t"),
)
_NEW_SPELLINGS = {"fc_norm": "fc_norms", "input_norm": "fc_input_norm", "norm_before_fc": "fc_input_norm"}
_UNUSED = re.compile(r"^t2d$|rotary_emb\.inv_freq$")


def module_name(name: str) -> str:
    """Return the name a published tensor has in the modules of this package; `d2t` and embedding keep theirs."""
    name = _PREFIXES.sub("", name)
    for pattern, replacement in _TO_MODULE:
        name = pattern.sub(replacement, name)
    head, dot, rest = name.partition(".")
    name = _NEW_SPELLINGS.get(head, head) + dot + rest
    return f"body.{name}" if name.startswith("layers.") else name


def published_by_module(names: Iterable[str]) -> dict[str, str]:
    """Return the published name of each tensor by its name here, without those nobody needs."""
    return {module_name(name): name for name in names if not _UNUSED.search(_PREFIXES.sub("", name))}
