"""Grows draft trees depth by depth: static trees, and trees expanded by joint confidence."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec.interfaces import ProposeBatch
from specdec_drafting.chooser import Chooser, Place
from specdec_drafting.head_config import HeadConfig
from specdec_drafting.sketch import Sketch
from specdec_drafting.tree import GrowingTree, children_of, comb_paths
from specdec_drafting.vocabulary import DraftVocabulary

_DEFAULT_DEPTH = 5
RunNodes = Callable[
    [list[GrowingTree], list[list[int]], list[torch.Tensor]], tuple[torch.Tensor, torch.Tensor]
]
"""Runs nodes of trees with the carries `[n, F]` of their parents; returns logits and carries, tree by tree."""


class TreeGrowth:
    """Decides which nodes a tree gets.

    Args:
        config: the shape of the tree.
        chooser: chooses children.
        vocabulary: the ids that may be drafted.
        eos_token_ids: ids after which nothing is drafted.
    """

    def __init__(
        self,
        config: HeadConfig,
        chooser: Chooser,
        vocabulary: DraftVocabulary,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._config, self._chooser, self._vocabulary = config, chooser, vocabulary
        self._eos_token_ids = eos_token_ids
        self._is_dynamic = config.is_dynamic
        self._depth = config.tree_depth or (_DEFAULT_DEPTH if self._is_dynamic else None)

    def most_rows(self, num_nodes: int) -> int:
        """Return the maximum number of rows, after the committed ones, for drafts of `num_nodes` nodes."""
        if self._is_dynamic:
            return self._config.tree_top_k * min(num_nodes, self._depth or num_nodes)
        return num_nodes

    def grow(
        self,
        batch: ProposeBatch,
        trees: list[GrowingTree],
        logits: torch.Tensor,
        carries: torch.Tensor,
        run_nodes: RunNodes,
    ) -> list[Sketch]:
        """Return the drafts.

        Args:
            batch: the step's batch.
            trees: one empty tree for each row to draft for.
            logits: `[R, V']` of each row's last committed token.
            carries: `[R, F]` likewise.
            run_nodes: runs nodes of the trees.
        """
        if self._depth is not None:
            for tree in trees:
                tree.max_depth = min(tree.max_depth, self._depth)
        shapes = [self._shape(tree) for tree in trees]
        frontier: list[tuple[int, list[int]]] = [(index, [-1]) for index in range(len(trees))]
        depth = 0
        while frontier:
            added = self._add_children(batch, trees, frontier, shapes, logits)
            depth += 1
            places = {
                (i, n): row for row, (i, n) in enumerate((i, n) for i, nodes in frontier for n in nodes)
            }
            following: list[tuple[int, list[int]]] = []
            features: list[torch.Tensor] = []
            for index, nodes in added:
                tree = trees[index]
                if depth >= tree.max_depth:
                    continue
                chosen = self._expanded(batch, tree, nodes, shapes[index])
                if chosen:
                    following.append((index, chosen))
                    features.append(carries[[places[index, tree.parents[node]] for node in chosen]])
            if not following:
                break
            frontier = following
            logits, carries = run_nodes([trees[i] for i, _ in frontier], [n for _, n in frontier], features)
        return [tree.sketch(is_pruned=self._is_dynamic) for tree in trees]

    def _shape(self, tree: GrowingTree) -> dict[tuple[int, ...], int] | None:
        """Return the number of children per path of ranks of a static tree; None for a tree expanded by confidence."""
        if self._is_dynamic:
            return None
        paths = self._config.tree_choices
        if paths is None:
            paths = comb_paths(tree.max_nodes, self._config.tree_top_k)
        else:
            paths = tuple(sorted(paths, key=lambda path: (len(path), path)))[: tree.max_nodes]
        return children_of(tuple(path for path in paths if len(path) <= tree.max_depth))

    def _add_children(
        self,
        batch: ProposeBatch,
        trees: list[GrowingTree],
        frontier: list[tuple[int, list[int]]],
        shapes: list[dict[tuple[int, ...], int] | None],
        logits: torch.Tensor,
    ) -> list[tuple[int, list[int]]]:
        """Add children to the nodes of the frontier; returns the new nodes of each tree."""
        places: list[Place] = []
        owners: list[tuple[int, int]] = []
        for index, nodes in frontier:
            tree, shape = trees[index], shapes[index]
            following = len(tree.token_ids)
            for node in nodes:
                if shape is None:
                    wanted = min(self._config.tree_top_k, self._vocabulary.num_ids)
                else:
                    wanted = shape.get(tree.ranks_of(node), 0)
                places.append(Place(tree.row, tree.path_of(node), following, wanted))
                owners.append((index, node))
                following += wanted
        if self._is_dynamic:
            choice = self._chooser.rank(logits, places, batch)
        else:
            choice = self._chooser.choose(logits, places, batch)
        assert choice.confidence is not None
        added: dict[int, list[int]] = {index: [] for index, _ in frontier}
        for row, (index, node) in enumerate(owners):
            tree = trees[index]
            is_drawn = choice.probs is not None and not batch.sampling_params[tree.row].is_greedy
            if is_drawn and choice.probs is not None and choice.target_ids[row]:
                tree.laws[node + 1] = choice.probs[row]
            added[index] += tree.add(
                node, choice.target_ids[row], choice.draft_ids[row], choice.confidence[row]
            )
        return list(added.items())

    def _expanded(
        self,
        batch: ProposeBatch,
        tree: GrowingTree,
        nodes: list[int],
        shape: dict[tuple[int, ...], int] | None,
    ) -> list[int]:
        """Return which of the new nodes get children."""
        ends = () if batch.sampling_params[tree.row].ignore_eos else self._eos_token_ids
        open_nodes = [
            node
            for node in nodes
            if tree.token_ids[node] not in ends
            and tree.chances[node] >= self._config.draft_confidence_threshold
        ]
        if shape is None:
            return tree.best(open_nodes, self._config.tree_top_k)
        return [node for node in open_nodes if shape.get(tree.ranks_of(node), 0)]
