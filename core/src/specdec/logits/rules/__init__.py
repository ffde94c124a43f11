"""Sampling parameters beyond temperature and truncation, along drafted paths."""

from specdec.logits.rules.processors import ProcessorRule
from specdec.logits.rules.request_rules import RequestRules, rules_of

__all__ = ["ProcessorRule", "RequestRules", "rules_of"]
