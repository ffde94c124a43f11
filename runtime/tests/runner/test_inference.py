"""Inference mode, entered once."""

from __future__ import annotations

import pytest
import torch

from specdec_runtime.runner import in_inference_mode


@in_inference_mode
def doubled(x: torch.Tensor, *, fails: bool = False) -> torch.Tensor:
    """Twice x."""
    if fails:
        raise KeyError("x")
    assert torch.is_inference_mode_enabled()
    return 2 * x


def test_mode_is_on_inside_and_as_before_outside() -> None:
    x = torch.ones(2, requires_grad=True)
    assert doubled(x).is_inference()
    assert not torch.is_inference_mode_enabled()
    with torch.inference_mode():
        assert doubled(x).is_inference()
        assert torch.is_inference_mode_enabled()
    assert (2 * x).requires_grad


def test_mode_is_left_by_errors_too() -> None:
    with pytest.raises(KeyError):
        doubled(torch.ones(1), fails=True)
    assert not torch.is_inference_mode_enabled()


def test_name_and_docstring_are_kept() -> None:
    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Twice x.")
