"""`specdec check-head`: which reading of a head's files its weights were trained for."""

from specdec_runtime.drafting.checking.likelihood import chain_likelihoods, log_likelihoods
from specdec_runtime.drafting.checking.readings import HeadReadings, Reading, of_chain
from specdec_runtime.drafting.checking.states import TargetStates

__all__ = ["HeadReadings", "Reading", "TargetStates", "chain_likelihoods", "log_likelihoods", "of_chain"]
