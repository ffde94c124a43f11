"""The sampler `strict`, and what samplers that verify with torch are made of; the other samplers are in `specdec-samplers`."""

from specdec.samplers.strict import StrictSampler
from specdec.samplers.torch_sampler import TorchSampler
from specdec.samplers.tree import path_to
from specdec.samplers.verdicts import greedy_verdict, raise_not_numbers

__all__ = ["StrictSampler", "TorchSampler", "greedy_verdict", "path_to", "raise_not_numbers"]
