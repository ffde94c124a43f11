"""A small pass of a model's own forward is one thread's; torch's number is the caller's before and after."""

from __future__ import annotations

import pytest
import torch
from speccheck.engines import greedy, make_llm, tokens_of
from speccheck.hybrids import hybrid
from speccheck.identity import reference
from speccheck.models import prompts

from specdec_runtime.runner import own_forward


@pytest.mark.parametrize("is_small", [True, False])
def test_a_small_pass_is_one_threads(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_forward, "_ALONE", own_forward._ALONE * is_small)
    model, (prompt,) = hybrid("lfm2"), prompts([9])
    expected, used = reference(model, prompt, 6), set()
    model.register_forward_pre_hook(lambda *_: used.add(torch.get_num_threads()))
    llm = make_llm(model)
    torch.set_num_threads(3)
    used.clear()
    assert tokens_of(llm, [prompt], greedy(6)) == [expected]
    assert used == {1 if is_small else 3}
    assert torch.get_num_threads() == 3


def test_an_error_gives_the_threads_back() -> None:
    torch.set_num_threads(3)
    with pytest.raises(KeyError), own_forward.one_thread():
        raise KeyError
    assert torch.get_num_threads() == 3
