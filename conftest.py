"""What holds for every test: where a GPU or Triton's interpreter is missing, its tests are skipped here and nowhere else."""

from __future__ import annotations

import os

import pytest
import torch

SKIPPED = {
    "gpu": (not torch.cuda.is_available(), "there is no GPU"),
    "interpreter": (
        os.environ.get("TRITON_INTERPRET") != "1",
        "needs TRITON_INTERPRET=1: make test-interpreter",
    ),
}
"""Markers, whether their tests cannot run here, and why."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, (is_missing, reason) in SKIPPED.items():
        if is_missing:
            for item in items:
                if item.get_closest_marker(marker) is not None:
                    item.add_marker(pytest.mark.skip(reason=reason))
