"""What the rows of a block see of the text before it."""

from __future__ import annotations

import pytest
import torch

from specdec_plugin_dflash import View

SIZE = 4


@pytest.mark.parametrize("num_before", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("window", [None, 1, 2, 3, 8])
@pytest.mark.parametrize(("is_causal", "is_from_anchor"), [(True, False), (False, False), (False, True)])
def test_the_first_key_is_the_first_that_a_row_sees(
    num_before: int, window: int | None, is_causal: bool, is_from_anchor: bool
) -> None:
    """Later ones would be missed, and earlier ones read in vain."""
    view = View(window, is_causal, is_from_anchor)
    rows = torch.arange(num_before, num_before + SIZE)[:, None]
    seen = view.visible(rows, torch.arange(num_before + SIZE)[None], num_before).any(0)
    assert view.first_key(num_before) == int(seen.int().argmax())
