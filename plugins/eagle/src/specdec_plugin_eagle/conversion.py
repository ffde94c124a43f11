"""Converts heads between the published layout and the speculators format; weights are unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specdec import ConfigError, ModelError
from specdec.config import Checkpoint
from specdec_plugin_eagle.aux_layers import AuxLayers, layers_read
from specdec_plugin_eagle.dialects import SPECULATORS_KEY, published_config, speculators_config
from specdec_plugin_eagle.names import module_name, published_name, speculators_name
from specdec_plugin_eagle.settings import EagleSettings
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checkpoint import WEIGHTS

PUBLISHED, SPECULATORS = "published", "speculators"
DEFAULT_TOKENS = 3
"""Default k, the same as in the speculators library."""


@dataclass(frozen=True)
class Conversion:
    """A planned conversion."""

    source: HeadCheckpoint
    method: str
    tensors: dict[str, str]
    """New tensor names by old ones."""
    config: dict[str, Any]

    def write(self, out: Path) -> None:
        """Write `config.json` and `model.safetensors`.

        Raises:
            ConfigError: if `out` already exists and is not an empty directory.
            ModelError: if the source cannot be read.
        """
        check_out(out)
        tensors = {
            new: self.source.read(old).clone(memory_format=torch.contiguous_format)
            for old, new in self.tensors.items()
        }
        out.mkdir(parents=True, exist_ok=True)
        save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
        (out / "config.json").write_text(json.dumps(self.config, indent=2) + "\n", encoding="utf-8")


def check_out(out: Path) -> None:
    """Refuse to overwrite anything.

    Raises:
        ConfigError: if `out` is a file, or a directory that is not empty.
    """
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: give a directory that is, or a new one")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file: give a directory to write to")


def plan_conversion(
    source: str,
    to: str,
    *,
    revision: str | None = None,
    verifier: str | None = None,
    num_tokens: int | None = None,
) -> Conversion:
    """Plan the conversion of a head without writing anything. Pickles are read as tensors alone, and written as safetensors.

    Args:
        source: directory or hub id of the head.
        to: `speculators` or `published`.
        revision: revision on the hub.
        verifier: the target to name in the speculators format.
        num_tokens: the k to name in it.

    Raises:
        ConfigError: if the head is already in that format, or an option does not apply to it.
        ModelError: if the source is not an EAGLE head, or is damaged.
    """
    checkpoint = HeadCheckpoint(source, revision, allow_pickle=True)
    config = checkpoint.config
    is_speculators = isinstance(config.get(SPECULATORS_KEY), dict)
    if checkpoint.pickled and is_speculators == (to == SPECULATORS):  # the same names, as safetensors
        return Conversion(checkpoint, to, {name: name for name in checkpoint.names()}, config)
    if is_speculators == (to == SPECULATORS):
        raise ConfigError(
            f"{checkpoint} is in the {to} {'format' if is_speculators else 'layout'} already: nothing to convert"
        )
    if to == PUBLISHED and (verifier is not None or num_tokens is not None):
        option = "--verifier" if verifier is not None else "--num-speculative-tokens"
        raise ConfigError(f"{option} is written in the speculators format only: leave it out")
    if num_tokens is not None and num_tokens < 1:
        raise ConfigError(f"--num-speculative-tokens is {num_tokens}: give 1 or more")
    modules = {name: module_name(name) for name in checkpoint.names()}
    has_three = is_eagle3(modules, checkpoint)
    settings = EagleSettings.from_dict(config, str(checkpoint), is_eagle3=has_three)
    if settings.aux_layers is not None:
        count = None if verifier is None else Checkpoint(verifier).number("num_hidden_layers")
        read = layers_read(settings.aux_layers, count, str(checkpoint))
        settings = replace(settings, aux_layers=AuxLayers(read))
    has_fc_bias = "fc.bias" in modules.values()
    if to == SPECULATORS:
        made = speculators_config(
            config,
            settings,
            is_eagle3=has_three,
            has_fc_bias=has_fc_bias,
            verifier=_absolute(verifier),
            num_tokens=num_tokens or DEFAULT_TOKENS,
        )
    else:
        made = published_config(config, settings, is_eagle3=has_three, has_fc_bias=has_fc_bias)
    rename = speculators_name if to == SPECULATORS else published_name
    tensors = {name: rename(module, is_eagle3=has_three) for name, module in modules.items()}
    twice = next((new for new in tensors.values() if list(tensors.values()).count(new) > 1), None)
    if twice is not None:
        same = " and ".join(repr(old) for old, new in tensors.items() if new == twice)
        raise ModelError(
            f"{checkpoint}: tensors {same} are the same part of the head: leave one of them there"
        )
    return Conversion(checkpoint, "eagle3" if has_three else "eagle", tensors, made)


def is_eagle3(modules: dict[str, str], checkpoint: HeadCheckpoint) -> bool:
    """Return whether the tensors are those of an EAGLE-3 head, as opposed to EAGLE-1.

    Args:
        modules: names in the head by published names.
        checkpoint: its files, for messages.

    Raises:
        ModelError: if they are neither's.
    """
    found = set(modules.values())
    if "body.layers.0.self_attn.q_proj.weight" in found:
        if "hidden_norm.weight" in found:
            return True
        if "fc.weight" in found:
            return False
    raise ModelError(
        f"{checkpoint} is not an EAGLE head: it has no layers.0.self_attn.q_proj.weight (or midlayer.), or neither "
        "fc.weight nor hidden_norm.weight beside it"
    )


def _absolute(verifier: str | None) -> str | None:
    """Return the absolute path of a directory; return a hub id unchanged."""
    return str(Path(verifier).resolve()) if verifier is not None and Path(verifier).is_dir() else verifier
