import threading

import torch

from specdec import ConfigError, EngineError
from specdec.parallel.messages import Event, Order, Raised, decode, encode
from specdec.parallel.passes import on_device, to_host
from specdec.runner.packed import PackedBatch, Segment


def test_a_pass_arrives_as_it_was() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    batch = PackedBatch(
        token_ids=torch.tensor([5, 6, 7]),
        positions=torch.tensor([0, 4, 5]),
        segments=[
            Segment(0, 1, 16, 0),
            Segment(1, 2, 32, 4, tree_mask=mask, depths=torch.tensor([0, 1]), num_branched=2),
        ],
        slots=torch.tensor([16, 36, 37]),
        logits_rows=torch.tensor([0, 2]),
    )
    order = decode(encode(Order(1, "run_pass", (0, to_host(batch)))))
    assert isinstance(order, Order)
    assert order.action == "run_pass"
    arrived = on_device(order.arguments[1], torch.device("cpu"))
    for name in ("token_ids", "positions", "slots", "logits_rows"):
        assert torch.equal(getattr(arrived, name), getattr(batch, name))
    first, second = arrived.segments
    assert first == batch.segments[0]
    assert (second.row, second.num_rows, second.first_slot, second.num_cached, second.num_branched) == (
        1,
        2,
        32,
        4,
        2,
    )
    assert second.tree_mask is not None
    assert torch.equal(second.tree_mask, mask)
    assert second.depths is not None
    assert second.depths.tolist() == [0, 1]


def test_errors_travel_as_what_they_are_or_say() -> None:
    sent = decode(encode(Raised(2, ConfigError("k = 0"))))
    assert isinstance(sent, Raised)
    assert type(sent.error) is ConfigError
    assert str(sent.error) == "k = 0"
    error = RuntimeError("no")
    error.add_note("x")
    error.lock = threading.Lock()  # type: ignore[attr-defined]  # what cannot be sent
    told = decode(encode(Raised(2, error)))
    assert isinstance(told, Raised)
    assert type(told.error) is EngineError
    assert str(told.error) == "RuntimeError: no"


def test_an_event_has_its_content() -> None:
    assert decode(encode(Event(1, "added", ("a", "b")))) == Event(1, "added", ("a", "b"))
