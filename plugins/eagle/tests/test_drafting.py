"""Trees as in EAGLE-2, parallel drafting, temperatures, grammars, and what goes wrong in a request's life."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout
from eagle_check.reference import Reference
from eagle_check.session import EagleSession, config_of
from eagle_check.shape import Shape
from eagle_check.targets import make_head, make_proposer, make_reference
from head_check.session import whole_life
from head_check.target import VOCAB

from specdec import ModelError
from specdec.engine import slot_pool
from specdec.interfaces import Capability, Draft, FinishReason, ProposeBatch
from specdec_testing.support.feed import Ask

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape(num_logits=40, has_map=True)
PARALLEL = replace(THREE, mask_id=60, has_fc_norms=True, has_own_embedding=True)


def make_session(
    folder: Path, shape: Shape, layout: Layout | None = None, *, is_eager: bool = False, **keys: Any
) -> EagleSession:
    path, tensors = make_head(folder, shape, layout)
    proposer = make_proposer(path, shape, is_eager=is_eager, **keys)
    return EagleSession(
        proposer, make_reference(shape, tensors), is_parallel=bool(keys.get("parallel_drafting", False))
    )


def best_tree(
    reference: Reference, text: list[int], states: Sequence[torch.Tensor], top_k: int, depth: int, size: int
) -> dict[tuple[int, ...], float]:
    """Return the paths of EAGLE-2's tree and the probability of each node given its parent, by the paper's two phases."""
    ids = reference.target_ids.tolist()
    confidences: dict[tuple[int, ...], float] = {}

    def joint(path: tuple[int, ...]) -> float:
        return math.prod(confidences[path[: n + 1]] for n in range(len(path)))

    layer: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        found = []
        for path in layer:
            probs = reference.after(text, states, path).softmax(-1)
            for index in probs.topk(top_k).indices.tolist():
                confidences[*path, ids[index]] = float(probs[index])
                found.append((*path, ids[index]))
        layer = sorted(found, key=joint, reverse=True)[:top_k]
    kept = sorted(confidences, key=joint, reverse=True)[:size]
    return {path: confidences[path] for path in kept}


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("shape", [ONE, THREE], ids=["1", "3"])
def test_dynamic_trees_are_those_of_the_paper(tmp_path: Path, shape: Shape, is_eager: bool) -> None:
    path, tensors = make_head(tmp_path, shape)
    proposer = make_proposer(path, shape, is_eager=is_eager, **config_of("dynamic tree"))
    reference = make_reference(shape, tensors)
    session = EagleSession(proposer, reference)
    session.begin("a", [3, 1, 4, 1, 5, 9, 2, 6], temperature=0.0)
    session.step({"a": Ask(8, 9)})
    for accepted in (2, 0, 3):
        count = session.accept("a", accepted)
        session.step({"a": Ask(count, 9)})
        row, text = session.rows["a"], session.text("a")
        got = {tuple(session.path(row, n)): row.confidence[n] for n in range(len(row.tokens))}
        assert got == pytest.approx(best_tree(reference, text, session.states(text), 3, 4, 9), rel=1e-4)
        joints = [math.prod(got[p[: i + 1]] for i in range(len(p))) for p in got]
        assert joints == sorted(joints, reverse=True)


@pytest.mark.parametrize("is_eager", [False, True])
@pytest.mark.parametrize("method", ["probabilistic", "greedy"])
def test_parallel_drafts_are_the_references(tmp_path: Path, method: str, is_eager: bool) -> None:
    session = make_session(
        tmp_path, PARALLEL, is_eager=is_eager, parallel_drafting=True, draft_sample_method=method
    )
    whole_life(session)
    assert session.num_compared > 30


@pytest.mark.parametrize("kind", ["greedy", "coupled", "coupled tree", "threshold", "comb"])
@pytest.mark.parametrize("shape", [ONE, THREE], ids=["1", "3"])
@pytest.mark.sampled(4, slow=4)
def test_compiled_and_own_forward_draft_the_same(tmp_path: Path, kind: str, shape: Shape) -> None:
    keys: dict[str, Any] = {
        "greedy": {},
        "coupled": {"draft_sample_method": "coupled"},
        "coupled tree": {"draft_sample_method": "coupled", **config_of("dynamic tree")},
        "threshold": {"draft_sample_method": "coupled", "draft_confidence_threshold": 0.05},
        "comb": {"draft_sample_method": "probabilistic", "tree_top_k": 2, "num_speculative_tokens": 7},
    }[kind]
    if "tree" in kind:
        keys["draft_sample_method"] = "coupled"
    histories = []
    for is_eager in (False, True):
        session = make_session(tmp_path / str(is_eager), shape, is_eager=is_eager, **keys)
        whole_life(session)
        histories.append(session.history)
    assert histories[0] == histories[1]


def test_each_request_drafts_at_its_own_temperature(tmp_path: Path) -> None:
    for is_eager in (False, True):
        session = make_session(
            tmp_path / str(is_eager), THREE, is_eager=is_eager, draft_sample_method="probabilistic"
        )
        for index, temperature in enumerate((0.0, 0.5, 1.7)):
            session.begin(f"{temperature}", [index, 7, 9, 11, 2], temperature=temperature)
        session.step({name: Ask(5, 4) for name in session.feed.requests})
        cold = session.rows["0.0"]
        assert cold.probs is None
        assert session.rows["0.5"].probs is not None
        best = []
        for depth in range(4):
            logits = session.expected("0.0", cold.tokens[:depth])
            best.append(int(session._reference.target_ids[logits.argmax()]))
        assert list(cold.tokens) == best


def test_rows_move_to_larger_places_and_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_pool, "_HEADROOM_BLOCKS", 0)
    for kind in ("chain", "dynamic tree", "drawn tree"):
        session = make_session(tmp_path / kind, THREE, **config_of(kind))
        session._proposer._rows._prefix_block_size = 4
        moves = []
        copy = session._proposer._runner.cache.copy
        monkeypatch.setattr(
            session._proposer._runner.cache,
            "copy",
            lambda *a, copy=copy, moves=moves: (moves.append(a), copy(*a)),
        )
        whole_life(session)
        assert len(moves) >= 2


def test_a_request_without_room_rests_until_it_starts_anew(tmp_path: Path) -> None:
    path, tensors = make_head(tmp_path, THREE)
    proposer = make_proposer(path, THREE, num_slots=64)
    session = EagleSession(proposer, make_reference(THREE, tensors))
    session.begin("long", [i % VOCAB for i in range(45)])
    session.begin("late", [9] * 20)
    session.step({"long": Ask(45, 4)})
    rows = session.feed.call({"long": Ask(0, 4), "late": Ask(20, 4)})
    assert len(rows["long"].tokens) == 4
    assert rows["late"].tokens == ()
    session.feed.finish(["long"], FinishReason.LENGTH)
    session.feed.requests["late"].text.append(5)
    assert session.feed.call({"late": Ask(1, 4)})["late"].tokens == ()
    session.step({"late": Ask(21, 4, start=0)})


def test_drafts_go_on_beyond_the_positions_a_head_was_made_for(tmp_path: Path) -> None:
    for is_eager in (False, True):
        layout = Layout(keys={"max_position_embeddings": 6})
        session = make_session(
            tmp_path / str(is_eager), THREE, layout, is_eager=is_eager, **config_of("chain")
        )
        whole_life(session)


def test_drafting_ends_at_max_model_len(tmp_path: Path) -> None:
    session = make_session(tmp_path, THREE, max_model_len=12, draft_sample_method="probabilistic")
    session.begin("a", list(range(1, 10)))
    session.step({"a": Ask(9, 4)})
    assert len(session.rows["a"].tokens) == 3
    session.feed.requests["a"].text.extend([5, 6, 7, 8])
    assert session.feed.call({"a": Ask(3, 4)})["a"].tokens == ()
    assert session.feed.call({"a": Ask(1, 4)})["a"].tokens == ()


def test_scaling_by_context_length_is_refused(tmp_path: Path) -> None:
    scaled = Layout(
        keys={"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}
    )
    path, _ = make_head(tmp_path, THREE, scaled)
    with pytest.raises(ModelError, match=r"rope_type 'dynamic'.*max_model_len=64"):
        make_proposer(path, THREE)
    make_proposer(path, THREE, max_model_len=64, is_eager=True)


class Ruled:
    """A proposer whose batches come with a grammar: odd ids only, and nothing at all behind two tokens."""

    def __init__(self, session: EagleSession) -> None:
        self._proposer = session._proposer
        self.capabilities, self.aux_layer_ids = self._proposer.capabilities, self._proposer.aux_layer_ids

    def propose(self, batch: ProposeBatch) -> Draft:
        return self._proposer.propose(replace(batch, allowed_after=self._allowed))

    def _allowed(self, row: int, path: Sequence[int]) -> torch.Tensor:
        bits = [sum(1 << i for i in range(32) if i % 2 and len(path) < 2)] * 2
        return torch.tensor([b - (1 << 32) if b >= 1 << 31 else b for b in bits], dtype=torch.int32)


@pytest.mark.parametrize("kind", ["chain", "dynamic tree", "drawn tree"])
def test_grammars_hold_for_every_node(tmp_path: Path, kind: str) -> None:
    session = make_session(tmp_path, replace(THREE, num_logits=VOCAB, has_map=False), **config_of(kind))
    session.feed.proposer = Ruled(session)  # type: ignore[assignment]  # as much of a proposer as a feed needs
    session.begin("a", [3, 1, 4, 1, 5])
    row = session.feed.call({"a": Ask(5, 6)})["a"]
    assert row.tokens
    assert all(token % 2 for token in row.tokens)
    assert max(row.depths) == 2
    for node in range(len(row.tokens) if row.probs is not None else 0):
        above = row.parents[node]
        logits = session.expected("a", session.path(row, above))
        logits[::2] = -torch.inf
        torch.testing.assert_close(row.probs[above + 1].double(), logits.softmax(-1), atol=1e-5, rtol=1e-5)


def test_capabilities_follow_the_configuration(tmp_path: Path) -> None:
    path, _ = make_head(tmp_path, THREE)
    states = {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}
    base = states | {Capability.OWN_KV, Capability.BEFORE_VERDICT}
    tree, probs = Capability.TREE, Capability.DRAFT_PROBS
    for keys, more in (
        ({}, set()),
        (config_of("chain"), {probs}),
        (config_of("dynamic tree"), {tree}),
        (config_of("drawn tree"), {tree, probs}),
        ({"draft_confidence_threshold": 0.1}, set()),
    ):
        assert make_proposer(path, THREE, **keys).capabilities == base | more
    last_only = replace(THREE, num_aux=0)
    path, _ = make_head(tmp_path / "last", last_only, Layout(aux_place=None))
    assert make_proposer(path, last_only).capabilities == base - {Capability.AUX_HIDDEN_STATES}
