"""Configuration: checks the user's settings and resolves them for the engine."""

from specdec.config.legacy import translate_llm_arguments
from specdec.config.resolve import ResolvedSpeculation, default_sampler, parse_speculative_config
from specdec.config.schema import json_schema
from specdec.config.speculative import SpeculativeConfig, split
from specdec.config.speculators import target_of
from specdec.config.target import TargetFacts
from specdec.config.vocabulary import first_differences

__all__ = [
    "ResolvedSpeculation",
    "SpeculativeConfig",
    "TargetFacts",
    "default_sampler",
    "first_differences",
    "json_schema",
    "parse_speculative_config",
    "split",
    "target_of",
    "translate_llm_arguments",
]
