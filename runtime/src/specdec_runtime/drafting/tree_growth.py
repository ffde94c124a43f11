"""Grows draft trees depth by depth: static trees, and trees expanded by joint confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from specdec.interfaces import ProposeBatch, sent
from specdec_runtime.drafting.chooser import Chooser, DraftPosition
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.partial_draft import PartialDraft
from specdec_runtime.drafting.tree import GrowingTree, children_of
from specdec_runtime.drafting.vocabulary import DraftVocabulary

_DEFAULT_DEPTH = 5
Nodes = list[tuple[GrowingTree, list[int]]]
"""Nodes of one depth, tree by tree; -1 is the last committed token."""
RunNodes = Callable[[Nodes, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Runs nodes with the carries `[n, F]` of their parents; returns logits and carries."""


class TreeGrowth:
    """Decides which nodes a tree gets.

    Args:
        config: the shape of the tree: `tree_choices`, or by confidence.
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
        self.depth = config.tree_depth or (_DEFAULT_DEPTH if self._is_dynamic else None)
        """The deepest node of a tree; None if the shape says it."""

    def most_rows(self, num_nodes: int) -> int:
        """Return the maximum number of rows, after the committed ones, for drafts of `num_nodes` nodes."""
        if self._is_dynamic:
            return self._config.tree_top_k * min(num_nodes, self.depth or num_nodes)
        return num_nodes

    def grow(
        self,
        batch: ProposeBatch,
        trees: Sequence[GrowingTree],
        logits: torch.Tensor,
        carries: torch.Tensor,
        run_nodes: RunNodes,
    ) -> list[PartialDraft]:
        """Return the drafts.

        Args:
            batch: the step's batch.
            trees: `[R]` one empty tree for each row to draft for.
            logits: `[R, V']` of each row's last committed token.
            carries: `[R, F]` likewise.
            run_nodes: runs nodes of the trees.
        """
        for tree in trees:
            tree.max_depth = min(tree.max_depth, self.depth or tree.max_depth)
            tree.shape = self._shape(tree)
        frontier: Nodes = [(tree, [-1]) for tree in trees]
        while True:
            parents = [(tree, node) for tree, nodes in frontier for node in nodes]
            first_new = [len(tree.token_ids) for tree in trees]
            self._add_children(batch, parents, logits)
            frontier = [
                (tree, nodes)
                for tree, first in zip(trees, first_new, strict=True)
                if (nodes := self._expanded(batch, tree, first))
            ]
            if not frontier:
                return [tree.pruned() if self._is_dynamic else tree for tree in trees]
            places = {(tree.row, node): place for place, (tree, node) in enumerate(parents)}
            above = [places[tree.row, tree.parents[node]] for tree, nodes in frontier for node in nodes]
            logits, carries = run_nodes(frontier, carries[sent(torch.tensor(above), carries.device)])

    def _shape(self, tree: GrowingTree) -> dict[tuple[int, ...], int] | None:
        """Return the number of children per path of ranks of a static tree; None for a tree expanded by confidence."""
        if self._is_dynamic:
            return None
        paths = sorted(self._config.tree_choices or (), key=lambda path: (len(path), path))
        return children_of(tuple(path for path in paths[: tree.max_nodes] if len(path) <= tree.max_depth))

    def _add_children(
        self, batch: ProposeBatch, parents: list[tuple[GrowingTree, int]], logits: torch.Tensor
    ) -> None:
        """Add children to nodes with logits `[n, V']`."""
        places: list[DraftPosition] = []
        following = {tree.row: len(tree.token_ids) for tree, _ in parents}
        for tree, node in parents:
            if tree.shape is None:
                wanted = min(self._config.tree_top_k, self._vocabulary.num_ids)
            else:
                wanted = tree.shape.get(tree.ranks_of(node), 0)
            places.append(DraftPosition(tree.row, tree.path_of(node), following[tree.row], wanted))
            following[tree.row] += wanted
        choose = self._chooser.rank if self._is_dynamic else self._chooser.choose
        choice = choose(logits, places, batch)
        assert choice.confidences is not None
        for row, (tree, node) in enumerate(parents):
            is_greedy = batch.sampling_params[tree.row].is_greedy
            if choice.probs is not None and not is_greedy and choice.target_ids[row]:
                tree.draft_probs[node + 1] = choice.probs[row]
            tree.add_children(node, choice.target_ids[row], choice.draft_ids[row], choice.confidences[row])

    def _expanded(self, batch: ProposeBatch, tree: GrowingTree, first: int) -> list[int]:
        """Return which nodes from `first` on get children."""
        ends = () if batch.sampling_params[tree.row].ignore_eos else self._eos_token_ids
        open_nodes = [
            node
            for node in range(first, len(tree.token_ids))
            if len(tree.paths[node]) < tree.max_depth
            and tree.token_ids[node] not in ends
            and tree.confidences[node] >= self._config.draft_confidence_threshold
        ]
        if tree.shape is None:
            return tree.best(open_nodes, self._config.tree_top_k)
        return [node for node in open_nodes if tree.shape.get(tree.ranks_of(node), 0)]
