"""Chooses the verification of a sampler: a backend's if it decides as torch does."""

from __future__ import annotations

import logging

import torch

from specdec import registry
from specdec.errors import described, line_of
from specdec.interfaces.backend import Declined, Verify
from specdec.interfaces.sampler import Sampler
from specdec.samplers.probe import problems

logger = logging.getLogger("specdec")

_chosen: dict[tuple[type[Sampler], torch.device], tuple[object, Verify | None]] = {}
"""For each sampler and device the backends that were asked, and what was chosen."""


def fast_verify(sampler: Sampler, own: Verify, device: torch.device) -> Verify | None:
    """Return a backend's verification for a sampler and a device, or None; chosen once for each set of backends.

    Args:
        sampler: its class is asked for once.
        own: its verification with torch.
        device: of the logits.
    """
    key = type(sampler), device
    backends, chosen = registry.backends(), _chosen.get(key)
    if chosen is None or chosen[0] is not backends:
        chosen = _chosen[key] = backends, _choose(sampler, own, device)
    return chosen[1]


def _choose(sampler: Sampler, own: Verify, device: torch.device) -> Verify | None:
    if "name" not in vars(type(sampler)) or sampler.Config.model_fields:
        return None
    for backend in registry.backends():
        try:
            found = backend.verifier(sampler.name, device)
            if isinstance(found, Declined):
                continue
            if _agrees(found, own, device):
                return found
            wrong = "decides otherwise"
        except Exception as error:  # a compiler, a driver or a launch may raise anything
            wrong = f"raised {described(error)}{line_of(error)}"
        logger.warning(
            "drafts are verified through torch: %s of backend %s %s", sampler.name, backend.name, wrong
        )
    return None


def _agrees(found: Verify, own: Verify, device: torch.device) -> bool:
    """Return whether a verification decides as the sampler's own does, where it does not decline."""
    return all((got := found(*problem)) is None or got == own(*problem) for problem in problems(device))
