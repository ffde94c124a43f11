"""Installed methods that need no draft model; commands use them by default."""

from __future__ import annotations

from specdec import registry
from specdec.arguments import SpeculativeOptions
from specdec.registry import Group
from specdec.registry.catalogue import known_methods

NUM_TOKENS = 5


def draftless_configs() -> list[SpeculativeOptions]:
    """Return a `speculative_config` for each installed method that drafts from tokens alone, in catalogue order."""
    installed = {info.name for info in registry.installed(Group.PROPOSERS) if registry.may_load(info)}
    names = [name for name, known in known_methods().items() if known.draft == "none" and name in installed]
    return [{"method": name, "num_speculative_tokens": NUM_TOKENS} for name in names]
