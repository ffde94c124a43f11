import pickle
from dataclasses import fields

import torch

from specdec_runtime.interfaces import KVCache, PackedBatch, Segment
from specdec_runtime.parallel.messages import Command
from specdec_runtime.parallel.models import SplitModels
from specdec_runtime.parallel.passes import as_pass_arrays, on_device


def names(kind: type) -> set[str]:
    """Return the fields of a dataclass, all of which have to travel."""
    return {field.name for field in fields(kind)}


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
        longest=64,
    )
    order = pickle.loads(pickle.dumps(Command("run_pass", (0, as_pass_arrays(batch)))))
    assert order.action == "run_pass"
    arrived = on_device(order.arguments[1], torch.device("cpu"))
    for name in names(PackedBatch) - {"segments"}:
        found, sent = getattr(arrived, name), getattr(batch, name)
        assert torch.equal(found, sent) if isinstance(sent, torch.Tensor) else found == sent
    first, second = arrived.segments
    assert first == batch.segments[0]
    # States of layers and adapters are not split over ranks, so whose they are does not travel.
    for name in names(Segment) - {"owner", "num_drafted", "adapter"}:
        found, sent = getattr(second, name), getattr(batch.segments[1], name)
        assert torch.equal(found, sent) if isinstance(sent, torch.Tensor) else found == sent
        assert sent is not None, f"this test gives no {name}"


def test_another_rank_knows_which_rows_a_pass_shares() -> None:
    """Where attention finds rows of cached prefixes travels with each pass; rank 0 alone places requests."""
    seen = []

    class Runner:
        device = torch.device("cpu")
        cache = KVCache(64, device)

        def forward(self, batch: PackedBatch) -> None:
            seen.append((batch.segments[0].first_slot, dict(self.cache.shared)))

    models = SplitModels.__new__(SplitModels)
    models._runners = [Runner()]
    ids = torch.tensor([5])
    arrays = as_pass_arrays(PackedBatch(ids, ids, [Segment(0, 1, -16, 40)], None, None))
    for shared in ({-16: (32, 32)}, {}):
        order = pickle.loads(pickle.dumps(Command("run_pass", (0, arrays, shared))))
        models.run_pass(*order.arguments)
    assert seen == [(-16, {-16: (32, 32)}), (-16, {})]
