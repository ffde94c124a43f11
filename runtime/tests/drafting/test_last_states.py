"""Which hidden state a draft begins from, and that there is none without one."""

from __future__ import annotations

import torch

from specdec import SamplingParams
from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting import LastStates


def batch(rows, *, states=True, flags=None):
    """Return a batch of rows (id, start, count); state j is filled with j + 1."""
    total = sum(count for _, _, count in rows)
    hidden = torch.arange(1.0, total + 1)[:, None].expand(total, 4).clone() if states else None
    return ProposeBatch(
        request_ids=tuple(name for name, _, _ in rows),
        max_nodes=[3] * len(rows),
        num_tokens=[start + count for _, start, count in rows],
        num_prompt_tokens=[1] * len(rows),
        starts=[start for _, start, _ in rows],
        counts=[count for _, _, count in rows],
        new_token_ids=torch.zeros(total, dtype=torch.int32).numpy(),
        last_num_drafted=[0] * len(rows),
        last_num_accepted=[0] * len(rows),
        sampling_params=(SamplingParams(),) * len(rows),
        draws=None,
        token_ids_of=None,
        hidden_states=hidden,
        has_hidden=None if hidden is None else torch.tensor([True] * total if flags is None else flags),
    )


def test_the_last_new_row_counts():
    states = LastStates()
    states.take_in(batch([("a", 0, 5), ("b", 7, 1), ("c", 3, 2)]))
    assert torch.stack(states.of(["c", "a", "b"]))[:, 0].tolist() == [8.0, 5.0, 6.0]
    assert states.has("a", 5)
    assert not states.has("a", 6), "tokens have been committed since"
    assert not states.has("d", 5)


def test_a_state_stays_while_nothing_is_new_and_is_a_copy():
    states = LastStates()
    first = batch([("a", 0, 2), ("b", 0, 3)])
    states.take_in(first)
    first.hidden_states.fill_(torch.nan)
    states.take_in(batch([("b", 3, 1), ("a", 2, 0)]))
    assert torch.stack(states.of(["a", "b"]))[:, 0].tolist() == [2.0, 1.0]
    states.take_in(batch([("a", 2, 0)], states=False))
    assert states.has("a", 2)


def test_rows_without_a_state_have_none():
    states = LastStates()
    states.take_in(batch([("a", 0, 1), ("b", 0, 2)], flags=[False, False, True]))
    assert not states.has("a", 1)
    assert states.has("b", 2)
    states.take_in(batch([("b", 2, 1)], states=False))
    assert not states.has("b", 3)
    assert not states.has("b", 2)


def test_going_back_forgets():
    states = LastStates()
    states.take_in(batch([("a", 0, 6)]))
    states.take_in(batch([("a", 4, 0)]))
    assert not states.has("a", 6)
    states.take_in(batch([("a", 0, 3)]))
    assert states.has("a", 3)
    states.drop("a")
    states.drop("a")
    assert not states.has("a", 3)
