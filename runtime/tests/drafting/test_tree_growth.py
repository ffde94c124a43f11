"""Trees that grow depth by depth, from a table of logits by path in place of a head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafting_check import GREEDY, WARM, KnownDraws, Rule, batch_of

from specdec import SamplingParams
from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting import Chooser, HeadConfig, PartialDraft, equal_vocabulary
from specdec_runtime.drafting.tree import GrowingTree
from specdec_runtime.drafting.tree_growth import Nodes, TreeGrowth

VOCAB = 12
CPU = torch.device("cpu")


def logits_after(path: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash(path) % 2**31)
    return 2.0 * torch.randn(VOCAB, generator=generator)


class Table:
    """Runs nodes by looking them up; the carry of a node is its path as a number."""

    def __init__(self) -> None:
        self.num_run: list[int] = []

    def __call__(self, frontier: Nodes, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, carries = [], []
        parts = features.split([len(nodes) for _, nodes in frontier])
        for (tree, nodes), part in zip(frontier, parts, strict=True):
            for node, feature in zip(nodes, part, strict=True):
                path = tree.paths[node]
                assert feature.tolist() == [code(path[:-1])], "a node gets its parent's carry"
                logits.append(logits_after(path))
                carries.append(torch.tensor([code(path)]))
            tree.run(nodes, part, 0, 0)
        self.num_run.append(len(features))
        return torch.stack(logits), torch.stack(carries)


def code(path: tuple[int, ...]) -> float:
    value = 1.0
    for token in path:
        value = (value * (VOCAB + 1) + token + 1) % 100003
    return value


def grow(
    keys: dict[str, Any],
    batch: ProposeBatch,
    max_nodes: int = 6,
    max_depth: int = 6,
    eos: tuple[int, ...] = (),
    table: Table | None = None,
) -> list[PartialDraft]:
    config = HeadConfig(**{"num_speculative_tokens": 8, "draft_sample_method": "greedy"} | keys)
    vocabulary = equal_vocabulary(VOCAB, VOCAB, CPU)
    chooser = Chooser(config.draft_sample_method, vocabulary, wants_confidence=True)
    growth = TreeGrowth(config, chooser, vocabulary, eos)
    trees = [GrowingTree(row, max_nodes, max_depth) for row in range(batch.batch_size)]
    logits = torch.stack([logits_after(())] * len(trees))
    carries = torch.full((len(trees), 1), code(()))
    return growth.grow(batch, trees, logits, carries, table or Table())


def paths(draft: PartialDraft) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.token_ids, draft.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def test_static_trees_have_the_paths_asked_for() -> None:
    choices = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 1, 0]]
    draft = grow({"tree_choices": choices}, batch_of(GREEDY))[0]
    best = {(): logits_after(()).topk(2).indices.tolist()}
    expected = []
    for ranks in choices:
        path: tuple[int, ...] = ()
        for rank in ranks:
            path = (*path, logits_after(path).topk(2).indices.tolist()[rank])
        expected.append(path)
    assert paths(draft) == expected
    assert expected[0][0] == best[()][0]
    for path, confidence in zip(paths(draft), draft.confidences, strict=True):
        assert confidence == pytest.approx(float(logits_after(path[:-1]).softmax(-1)[path[-1]]))


def test_drawn_trees_come_with_their_probabilities() -> None:
    choices = [[0], [1], [0, 0], [1, 0]]
    batch = batch_of(WARM, GREEDY)
    first, second = grow({"tree_choices": choices, "draft_sample_method": "probabilistic"}, batch)
    assert sorted(first.draft_probs) == [0, 1, 2]
    assert second.draft_probs == {}
    for row, probs in first.draft_probs.items():
        above = paths(first)[row - 1] if row else ()
        torch.testing.assert_close(probs, logits_after(above).softmax(-1))
    assert isinstance(batch.draws, KnownDraws)
    nodes = [node for rows, node in batch.draws.nodes if 0 in rows]
    assert len(set(nodes)) == len(nodes), "no draw is used twice"


def test_static_trees_are_cut_from_their_end() -> None:
    choices = [[0, 0], [0], [1], [0, 0, 0], [1, 0]]
    whole = paths(grow({"tree_choices": choices}, batch_of(GREEDY))[0])
    assert [len(path) for path in whole] == [1, 1, 2, 2, 3]
    assert paths(grow({"tree_choices": choices}, batch_of(GREEDY), max_nodes=3)[0]) == whole[:3]
    assert paths(grow({"tree_choices": choices}, batch_of(GREEDY), max_depth=2)[0]) == whole[:4]


def test_dynamic_trees_run_few_nodes_and_keep_the_best() -> None:
    table = Table()
    draft = grow({"tree_top_k": 3, "tree_depth": 3}, batch_of(GREEDY), max_nodes=7, table=table)[0]
    assert table.num_run == [3, 3]
    assert len(draft.token_ids) == 7
    joint = {}
    for path, confidence in zip(paths(draft), draft.confidences, strict=True):
        joint[path] = joint.get(path[:-1], 1.0) * confidence
    assert list(joint.values()) == sorted(joint.values(), reverse=True)
    assert max(map(len, joint)) <= 3


def test_requests_of_one_batch_differ_in_everything() -> None:
    hot = SamplingParams(temperature=3.0, seed=4)
    alone = [grow({"tree_top_k": 2}, batch_of(params))[0] for params in (GREEDY, hot)]
    together = grow({"tree_top_k": 2}, batch_of(GREEDY, hot))
    assert [paths(draft) for draft in together] == [paths(draft) for draft in alone]


@pytest.mark.parametrize("keys", [{"tree_top_k": 3}, {"tree_choices": [[0], [1], [0, 0], [1, 0]]}])
def test_nothing_grows_behind_the_end_of_text(keys: dict[str, Any]) -> None:
    first = int(logits_after(()).argmax())
    for params, is_behind in ((GREEDY, False), (SamplingParams(temperature=0.0, ignore_eos=True), True)):
        draft = grow(keys, batch_of(params), eos=(first,))[0]
        assert first in draft.token_ids
        assert any(path[0] == first and len(path) > 1 for path in paths(draft)) == is_behind


def test_nothing_grows_behind_an_unlikely_token() -> None:
    keys = {"tree_choices": [[0], [1], [0, 0], [1, 0]], "draft_confidence_threshold": 0.2}
    draft = grow(keys, batch_of(GREEDY))[0]
    for path in paths(draft):
        if len(path) == 2:
            assert float(logits_after(()).softmax(-1)[path[0]]) >= 0.2
    assert sum(len(path) == 1 for path in paths(draft)) == 2


def odd_and_short(row: int, path: tuple[int, ...]) -> list[int] | None:
    return None if row else [] if len(path) == 2 else [1, 3, 5]


@pytest.mark.parametrize(
    "keys",
    [
        {"tree_top_k": 4},
        {"tree_choices": [[0], [1], [2], [3], [0, 0], [0, 0, 0]]},
    ],
)
def test_grammars_cut_branches(keys: dict[str, Any]) -> None:
    rule: Rule = odd_and_short  # type: ignore[assignment]  # a path is a tuple
    ruled, free = grow(keys, batch_of(WARM, WARM, rule=rule))
    assert set(ruled.token_ids) <= {1, 3, 5}
    assert max(map(len, paths(ruled))) <= 2
    assert max(map(len, paths(free))) >= 2
    assert paths(free) == paths(grow(keys, batch_of(WARM))[0])


def test_rows_that_drafts_take() -> None:
    vocabulary = equal_vocabulary(VOCAB, VOCAB, CPU)
    chooser = Chooser("greedy", vocabulary, wants_confidence=True)

    def most(num_nodes: int, **keys: Any) -> int:
        config = HeadConfig(num_speculative_tokens=9, **keys)
        return TreeGrowth(config, chooser, vocabulary, ()).most_rows(num_nodes)

    assert most(4) == 4
    assert most(9, tree_top_k=3) == 15
    assert most(9, tree_top_k=3, tree_depth=2) == 6
    assert most(2, tree_top_k=3) == 6
    assert most(9, tree_choices=((0,),)) == 9
