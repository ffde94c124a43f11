"""Reads Medusa heads in the originally published layout and in the one vLLM reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import torch

from specdec import ModelError
from specdec_plugin_mlp.layout import check_count
from specdec_plugin_mlp.medusa.layout import MedusaLayout
from specdec_plugin_mlp.medusa.model import Medusa
from specdec_plugin_mlp.unused import warn_of_unused
from specdec_runtime.drafting import HeadCheckpoint

_PREFIX = re.compile(r"^medusa_heads?\.")
_SPELLINGS = (
    (re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)"), r"blocks.\1.layers.\2.\3"),
    (re.compile(r"(\d+)\.\d+\.weight"), r"lm_heads.\1.weight"),
    (re.compile(r"lm_head\.weight"), "lm_heads.0.weight"),
)
_KNOWN = re.compile(r"blocks\.\d+\.layers\.\d+\.(weight|bias)|lm_heads\.\d+\.weight|token_map")


def load_medusa(
    checkpoint: HeadCheckpoint,
    *,
    max_heads: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Medusa, torch.Tensor | None]:
    """Return the heads of a checkpoint, frozen and in evaluation mode, and the ids that they can draft.

    Args:
        checkpoint: `config.json` and tensors `blocks.i.layers.j.weight` `[H, H]`, `lm_heads.i.weight` `[V', H]` or `[V, H]`,
            and optionally biases and `token_map` `[V']`; or with the original names `i.j.linear.weight` and
            `i.n.weight`; all names optionally with the prefix `medusa_heads.`.
        max_heads: the most heads to load.
        dtype: dtype of the weights; None for the stored one.
        device: device of the weights.

    Returns:
        the heads, and `[V']` int64 on the CPU: the target id of each logit, or None if all ids can be drafted.

    Raises:
        ModelError: naming the file, key or tensor that is missing, damaged or of another shape.
    """
    names = _names(checkpoint)
    layout = read_layout(checkpoint)
    if max_heads is not None:
        layout = layout.model_copy(update={"num_heads": min(layout.num_heads, max_heads)})
    with torch.device("meta"):
        heads = Medusa(layout)
    token_map = _token_map(checkpoint, names, layout)
    read: dict[str, torch.Tensor] = {}
    whole = (layout.vocab_size, layout.hidden_size)
    for name, parameter in heads.state_dict().items():
        kept = "lm_heads.0.weight" if layout.original_lm_head and name.startswith("lm_heads.") else name
        if kept not in read:
            stored = names.get(kept, kept)
            is_whole = (
                token_map is not None and kept.startswith("lm_heads.") and checkpoint.shape(stored) == whole
            )
            tensor = checkpoint.read(stored, whole if is_whole else parameter.shape)
            read[kept] = (tensor[token_map] if is_whole else tensor).to(device, dtype)
        read[name] = read[kept]
    warn_of_unused(checkpoint, set(names.values()))
    heads.load_state_dict(read, assign=True)
    return heads.requires_grad_(False).eval(), token_map


def read_layout(checkpoint: HeadCheckpoint) -> MedusaLayout:
    """Return the sizes of heads from `config.json`, and from the tensors for missing keys.

    Original checkpoints have configurations without sizes, and with fewer heads than the file holds. ModelOpt saves heads with
    their target, whose configuration has their sizes under `medusa`.

    Raises:
        ModelError: naming the invalid or missing entry.
    """
    names, found = _names(checkpoint), dict(checkpoint.config)
    num_logits, hidden_size = checkpoint.shape(names.get("lm_heads.0.weight", "lm_heads.0.weight"))
    if isinstance(inner := found.get("medusa"), Mapping):
        found |= {
            "num_heads": inner.get("num_medusa_heads"),
            "num_hidden_layers": inner.get("num_medusa_layers"),
        }
    for key, old in (("num_heads", "medusa_num_heads"), ("num_hidden_layers", "medusa_num_layers")):
        if key not in found and old in found:
            found[key] = found[old]
    num_held, num_layers = _count(names, r"blocks\.(\d+)\."), _count(names, r"blocks\.\d+\.layers\.(\d+)\.")
    if isinstance(found.setdefault("num_heads", num_held), int):
        found["num_heads"] = max(found["num_heads"], num_held)
    found.setdefault("num_hidden_layers", num_layers or 1)
    found.setdefault("hidden_size", hidden_size)
    if "token_map" not in names:
        found.setdefault("vocab_size", num_logits)
    if any(name.endswith(".bias") for name in names):
        found["medusa_fc_bias"] = True
    layout = MedusaLayout.read(checkpoint, found)
    check_count(checkpoint, "num_heads", layout.num_heads)
    check_count(checkpoint, "num_hidden_layers", layout.num_hidden_layers)
    return layout


def _count(names: Collection[str], pattern: str) -> int:
    """Return the number of indices that the group of `pattern` takes in names."""
    found = (match[1] for name in names if (match := re.match(pattern, name)) and len(match[1]) < 10)
    return max((int(number) + 1 for number in found), default=0)


def _names(checkpoint: HeadCheckpoint) -> dict[str, str]:
    """Return the stored name of each tensor of the heads by its name in the module."""
    found: dict[str, str] = {}
    prefixed = [name for name in checkpoint.names() if _PREFIX.match(name)]
    for stored in prefixed or checkpoint.names():  # beside them, in a target's file, are the target's
        name = _PREFIX.sub("", stored)
        for pattern, spelling in _SPELLINGS:
            if match := pattern.fullmatch(name):
                name = match.expand(spelling)
                break
        if _KNOWN.fullmatch(name):
            found[name] = stored
    return found


def _token_map(
    checkpoint: HeadCheckpoint, names: dict[str, str], layout: MedusaLayout
) -> torch.Tensor | None:
    """Return the target ids `[V']` of the logits, or None if there is a logit for every id."""
    if layout.num_logits == layout.vocab_size:
        names.pop("token_map", None)
        return None
    if "token_map" not in names:
        return torch.arange(layout.num_logits)
    token_map = checkpoint.read(names["token_map"], (layout.num_logits,))
    is_whole = not token_map.is_floating_point()
    token_map = token_map.to(torch.int64)
    is_inside = bool(((token_map >= 0) & (token_map < layout.vocab_size)).all())
    if not is_whole or not is_inside or len(token_map.unique()) < len(token_map):
        raise ModelError(
            f"{checkpoint.directory}: tensor {names['token_map']!r} does not hold different ids below vocab_size = "
            f"{layout.vocab_size}: fetch it again"
        )
    return token_map
