"""Installed methods that need nothing but the target; commands use them by default."""

from __future__ import annotations

from specdec import SpeculativeOptions, registry
from specdec.registry import Group, known_methods

NUM_TOKENS = 5


def default_configs() -> list[SpeculativeOptions]:
    """Return a `speculative_config` for `auto` where it is installed, then for each method that drafts from tokens alone."""
    installed = {info.name for info in registry.installed(Group.PROPOSERS) if registry.may_load(info)}
    names = [name for name, known in known_methods().items() if known.draft == "none" and name in installed]
    own: list[SpeculativeOptions] = [{"method": name, "num_speculative_tokens": NUM_TOKENS} for name in names]
    return [{"method": "auto"}, *own] if "auto" in installed else own
