"""Hidden states of SGLang's passes, without SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specdec import ConfigError
from specdec_sglang.states import PassStates


class Model:
    """SGLang's target, as far as it is told what to return."""

    def __init__(self) -> None:
        self.logits_processor = SimpleNamespace(keep_last_hidden_states=False)
        self.asked: list[int] = []

    def set_eagle3_layers_to_capture(self, layer_ids: list[int]) -> None:
        self.asked = layer_ids


class Req:
    def __init__(self, rid: str) -> None:
        self.rid, self.has_ended = rid, False

    def finished(self) -> bool:
        return self.has_ended


def batch(*reqs: Req, prefix: tuple[int, ...] = (), extend: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(reqs=reqs, prefix_lens=prefix, extend_lens=extend, return_hidden_states=False)


def output(first: int, rows: int) -> Any:
    """Return final states `[rows, 1]` from `first` on, and those of two layers, 100 and 200 more."""
    final = torch.arange(first, first + rows, dtype=torch.float32)[:, None]
    return SimpleNamespace(hidden_states=torch.cat([final + 100, final + 200], 1), last_hidden_states=final)


def test_states_of_prompts_in_chunks_and_of_verified_drafts() -> None:
    model = Model()
    states = PassStates(model, (2, 1), 4)
    assert (model.asked, model.logits_processor.keep_last_hidden_states) == ([0, 1], True)
    a, b, c = Req("a"), Req("b"), Req("c")
    passed = output(0, 4)
    states.note(batch(a, b, prefix=(0, 5), extend=(3, 1)), passed, None)
    assert passed.hidden_states is None, "SGLang copies nothing that no client asked for"
    states.note(batch(a, c, prefix=(3, 0), extend=(2, 2)), output(4, 4), None)
    start, kinds = states.take("a") or (None, ())
    assert start == 0
    assert [kind.flatten().tolist() for kind in kinds] == [
        [0, 1, 2, 4, 5], [200, 201, 202, 204, 205], [100, 101, 102, 104, 105],
    ]  # fmt: skip
    assert (states.take("b") or (None,))[0] == 5, "behind a cached prefix"
    c.has_ended = True
    states.note(batch(b), output(8, 3), 3)
    assert states.take("c") is None, "it ended in its prompt's pass, and nobody asked"
    start, kinds = states.take("b") or (0, ())
    assert start is None
    assert kinds[0].flatten().tolist() == [8, 9, 10]


def test_states_that_sglang_does_not_return_are_refused() -> None:
    with pytest.raises(ConfigError, match="last of the target's 4 layers"):
        PassStates(Model(), (4,), 4)


def test_final_states_alone() -> None:
    states = PassStates(Model(), (), 4)
    a = Req("a")
    given = SimpleNamespace(hidden_states=torch.ones(2, 1), last_hidden_states=None)
    states.note(batch(a), given, 2)
    _, kinds = states.take("a") or (None, ())
    assert len(kinds) == 1
