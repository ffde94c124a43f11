"""Sampling parameters beyond temperature and truncation, along drafted paths: part `logits_rules` of specdec."""

from specdec_samplers.rules.processors import ProcessorRule
from specdec_samplers.rules.request_rules import ParameterRules, RequestRules

__all__ = ["ParameterRules", "ProcessorRule", "RequestRules"]
