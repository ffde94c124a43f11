"""Checks that the kernels verify on this device as their reference does, once for each operation."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

import torch

logger = logging.getLogger("specdec")

_REQUESTS, _NODES, _VOCAB = 4, 3, 5003
_PARENTS = ((-1, -1, 0), (-1, 0, 1), (-1, 0, 0), (-1, -1, -1))
"""Parents of the test trees, one row per request."""


def serves_device(operation: str, device: torch.device) -> bool:
    """Return whether a kernel can serve a device: a GPU where it is installed and agrees with torch.

    Args:
        operation: `strict_verify`, `rejection_verify` or `block_verify`.
        device: the logits' device.
    """
    if device.type != "cuda":
        return False
    from specdec.runner.attention_backend import missing_kernels  # its package imports transformers

    return missing_kernels() is None and _agrees(operation, device)


@cache
def _agrees(operation: str, device: torch.device) -> bool:
    """Try a kernel once; warn if it fails or disagrees with its reference."""
    try:
        wrong = difference(operation, device)
    except Exception as error:  # a compiler, a driver or a launch may raise anything
        wrong = f"it raised {type(error).__name__}: {error}"
    if wrong is not None:
        logger.warning("drafts are verified through torch: the kernel %s fails here: %s", operation, wrong)
    return wrong is None


def difference(operation: str, device: torch.device) -> str | None:
    """Return briefly what is wrong with a kernel on a device; None if it agrees with its reference."""
    from specdec.runner.triton_backend import kernels_on  # imports the optional kernels
    from specdec_kernels import Backend, use_backend

    verify = getattr(import_module(f"specdec_kernels.{operation}"), operation)
    for arguments, options in _problems(operation, device):
        with kernels_on(device):
            got = verify(*arguments, **options)
        with use_backend(Backend.REFERENCE):
            expected = verify(*arguments, **options)
        if not all(map(torch.equal, got, expected)):
            return "it decides otherwise than its reference"
    return None


def _problems(operation: str, device: torch.device) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return test drafts: chains, and trees or drafts with q where the operation takes them."""
    from specdec_kernels.noise.keys import NoiseKeys  # imports the optional kernels

    generator = torch.Generator().manual_seed(0)
    num_rows = _REQUESTS * (_NODES + 1)
    logits = 3.0 * torch.randn(num_rows, _VOCAB, generator=generator)
    ids = logits.view(_REQUESTS, _NODES + 1, _VOCAB)[:, :_NODES].argmax(-1)  # some of them are accepted
    counts = torch.tensor([_NODES, 0, *[_NODES] * (_REQUESTS - 2)])
    keys = NoiseKeys(*(torch.arange(_REQUESTS) + start for start in (11, 40, 0)))
    temperatures = torch.tensor([0.0, *[1.0] * (_REQUESTS - 1)])
    starts = torch.arange(0, num_rows, _NODES + 1)
    given = (logits, ids, starts, counts, temperatures)
    arguments = (*(tensor.to(device) for tensor in given), NoiseKeys(*(key.to(device) for key in keys)))
    if operation == "strict_verify":
        return [(arguments, {}), (arguments, {"parents": torch.tensor(_PARENTS).to(device)})]
    law = torch.softmax(2.0 * torch.randn(_REQUESTS, _NODES, _VOCAB, generator=generator), -1)
    flags = torch.tensor([True, True, *[False] * (_REQUESTS - 3), True])
    return [(arguments, {}), (arguments, {"draft_probs": law.to(device), "has_probs": flags.to(device)})]
