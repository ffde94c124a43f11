"""The sampler `strict`, and what samplers that verify with torch are made of; the other samplers are in `specdec-samplers`."""

from specdec.samplers.paths import greedy_verdict, node_depths, path_to, raise_not_numbers
from specdec.samplers.strict import StrictSampler
from specdec.samplers.torch_sampler import TorchSampler

__all__ = ["StrictSampler", "TorchSampler", "greedy_verdict", "node_depths", "path_to", "raise_not_numbers"]
