"""Configuration: checks the user's settings and resolves them for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.config.legacy import translate_llm_arguments
from specdec.config.resolve import ResolvedSpeculation, default_sampler, parse_speculative_config
from specdec.config.schema import json_schema
from specdec.config.speculative import SpeculativeConfig, split
from specdec.config.speculators import target_of
from specdec.config.target import TargetFacts
from specdec.config.vocabulary import first_differences
from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.config.checkpoint import Checkpoint as Checkpoint
    from specdec.config.checkpoint import find_number as find_number
    from specdec.config.draft_rules import CONTEXT_KEYS as CONTEXT_KEYS
    from specdec.config.early import check_first as check_first
    from specdec.config.fit import target_facts as target_facts
    from specdec.config.model_name import check_name as check_name
    from specdec.config.model_name import resolve_name as resolve_name
    from specdec.config.notices import notice as notice
    from specdec.config.resolve import DEFAULT_SAMPLER as DEFAULT_SAMPLER
    from specdec.config.source import read_mapping as read_mapping
    from specdec.config.zoo import PACKAGED as PACKAGED
    from specdec.config.zoo import ZOO as ZOO
    from specdec.config.zoo import packaged_model as packaged_model
    from specdec.config.zoo import zoo_draft as zoo_draft
    from specdec.config.zoo import zoo_path as zoo_path

__all__ = [
    "CONTEXT_KEYS",
    "DEFAULT_SAMPLER",
    "PACKAGED",
    "ZOO",
    "Checkpoint",
    "ResolvedSpeculation",
    "SpeculativeConfig",
    "TargetFacts",
    "check_first",
    "check_name",
    "default_sampler",
    "find_number",
    "first_differences",
    "json_schema",
    "notice",
    "packaged_model",
    "parse_speculative_config",
    "read_mapping",
    "resolve_name",
    "split",
    "target_facts",
    "target_of",
    "translate_llm_arguments",
    "zoo_draft",
    "zoo_path",
]

__getattr__ = lazily(
    __name__,
    {
        "CONTEXT_KEYS": "draft_rules",
        "Checkpoint": "checkpoint",
        "DEFAULT_SAMPLER": "resolve",
        "PACKAGED": "zoo",
        "ZOO": "zoo",
        "check_first": "early",
        "check_name": "model_name",
        "find_number": "checkpoint",
        "notice": "notices",
        "packaged_model": "zoo",
        "read_mapping": "source",
        "resolve_name": "model_name",
        "target_facts": "fit",
        "zoo_draft": "zoo",
        "zoo_path": "zoo",
    },
)
