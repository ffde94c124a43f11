"""Draft trees while they grow: paths, scores, what each row sees, and which nodes are kept."""

from __future__ import annotations

import math
import random

import pytest
import torch

from specdec_runtime.drafting.tree import GrowingTree, children_of


def grown() -> GrowingTree:
    tree = GrowingTree(row=0, max_nodes=4, max_depth=3)
    tree.add_children(-1, [7, 8, 9], [70, 80, 90], [0.5, 0.3, 0.1])
    tree.add_children(0, [1, 2], [10, 20], [0.9, 0.05])
    tree.add_children(1, [1], [10], [1.0])
    return tree


def test_nodes_know_their_way_down() -> None:
    tree = grown()
    assert tree.path_of(3) == (7, 1)
    assert tree.path_of(-1) == ()
    assert tree.ranks_of(4) == (0, 1)
    assert tree.ranks_of(5) == (1, 0)
    assert tree.draft_ids == [70, 80, 90, 10, 20, 10]
    assert tree.scores[3] == pytest.approx(math.log(0.45))
    assert tree.scores[5] == pytest.approx(math.log(0.3))


def test_a_repeated_sibling_ends_the_siblings() -> None:
    tree = GrowingTree(0, 9, 9)
    tree.add_children(-1, [4, 5, 4, 6], [4, 5, 4, 6], [0.4, 0.3, 0.2, 0.1])
    tree.add_children(0, [], [], [])
    assert tree.token_ids == [4, 5]


def test_a_confidence_of_zero_is_no_error() -> None:
    tree = GrowingTree(0, 9, 9)
    tree.add_children(-1, [4], [4], [0.0])
    assert math.isfinite(tree.scores[0])


def test_a_row_sees_the_nodes_above_it() -> None:
    tree = grown()
    first = tree.run([0, 1], torch.zeros(2, 3), 64, 10)
    assert first.tree_mask is not None
    assert first.tree_mask.tolist() == [[True, False], [False, True]]
    second = tree.run([5, 3], torch.zeros(2, 3), 64, 10)
    assert second.tree_mask is not None
    assert second.tree_mask.tolist() == [[False, True, True, False], [True, False, False, True]]
    assert second.positions is not None
    assert second.positions.tolist() == [11, 11]
    assert (second.ids.tolist(), second.num_cached, second.num_branched) == ([10, 10], 12, 2)
    assert (second.first_slot, second.num_logits) == (64, 2)


def test_the_best_nodes_come_with_all_above_them() -> None:
    tree = grown()
    assert tree.best([0, 1, 2, 3, 4, 5], 4) == [0, 3, 1, 5]
    draft = tree.pruned()
    assert draft.token_ids == [7, 1, 8, 1]
    assert draft.parents == [-1, 0, -1, 2]
    assert draft.confidences == [0.5, 0.9, 0.3, 1.0]
    assert tree.token_ids == [7, 8, 9, 1, 2, 1]
    assert tree.parents == [-1, -1, -1, 0, 0, 1]


def test_equal_nodes_are_kept_in_the_order_added() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        tree = GrowingTree(0, 5, 9)
        nodes = [-1]
        for _ in range(6):
            parent = rng.choice(nodes)
            tree.add_children(parent, rng.sample(range(50), 3), [0, 0, 0], [1.0, 0.5, 0.5])
            nodes = list(range(-1, len(tree.token_ids)))
        draft = tree.pruned()
        assert len(draft.token_ids) == 5
        assert all(parent < node for node, parent in enumerate(draft.parents))


def test_children_are_counted() -> None:
    paths = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 1, 0))
    assert children_of(paths) == {(): 2, (0,): 2, (1,): 1, (0, 1): 1}
    assert children_of(tuple(reversed(paths))) == children_of(paths)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (((0,), ()), r"\[\] is not a path"),
        (((0,), (-1,)), r"\[-1\] is not a path"),
        (((0,), (1, 0)), r"the path \[1, 0\] needs the path \[1\]"),
        (((0,), (2,)), r"the path \[2\] needs the path \[1\]"),
        (((0,), (0, 1)), r"the path \[0, 1\] needs the path \[0, 0\]"),
    ],
)
def test_a_tree_with_holes_is_refused(paths: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        children_of(paths)
