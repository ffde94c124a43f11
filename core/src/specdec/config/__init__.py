"""Configuration: checks the user's settings and resolves them for the engine."""

from __future__ import annotations

from specdec.config.checkpoint import Checkpoint, find_number, read_mapping_of, shards_of
from specdec.config.compat import llm_arguments, translate_llm_arguments
from specdec.config.hub import HUB_ID, is_hub_reachable
from specdec.config.inference import infer_method
from specdec.config.model_name import check_name, locate, resolve_name
from specdec.config.named_files import inside
from specdec.config.notices import draft_ends, notice
from specdec.config.resolve import (
    DEFAULT_SAMPLER,
    ResolvedSpeculation,
    check_first,
    default_sampler,
    parse_speculative_config,
    with_checked_args,
)
from specdec.config.source import read_mapping
from specdec.config.speculative import SpeculativeConfig, split
from specdec.config.speculators import target_of
from specdec.config.target import CONTEXT_KEYS, VOCABULARY_KEYS, facts_in, target_facts
from specdec.config.zoo import PACKAGED, ZOO, packaged_model, zoo_draft, zoo_path
from specdec.target_facts import TargetFacts

__all__ = [
    "CONTEXT_KEYS",
    "DEFAULT_SAMPLER",
    "HUB_ID",
    "PACKAGED",
    "VOCABULARY_KEYS",
    "ZOO",
    "Checkpoint",
    "ResolvedSpeculation",
    "SpeculativeConfig",
    "TargetFacts",
    "check_first",
    "check_name",
    "default_sampler",
    "draft_ends",
    "facts_in",
    "find_number",
    "infer_method",
    "inside",
    "is_hub_reachable",
    "llm_arguments",
    "locate",
    "notice",
    "packaged_model",
    "parse_speculative_config",
    "read_mapping",
    "read_mapping_of",
    "resolve_name",
    "shards_of",
    "split",
    "target_facts",
    "target_of",
    "translate_llm_arguments",
    "with_checked_args",
    "zoo_draft",
    "zoo_path",
]
