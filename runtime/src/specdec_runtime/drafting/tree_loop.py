"""Drafts trees that are expanded by joint confidence in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting.chains import ChainCall, work_of
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.partial_draft import PartialDraft, UnreadNodes
from specdec_runtime.drafting.passes import CachedRows
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.interfaces.chain import ChainRules


class TreeLoop:
    """Drafts with a runner's loop, if it supports what a batch needs; else `TreeGrowth` does.

    A loop goes on after tokens that end a text, which costs nothing but nodes.

    Args:
        config: the shape of the trees.
        vocabulary: the ids that may be drafted.
        num_logits: number of logits of the draft.
        depth: the deepest node of a tree.
    """

    def __init__(
        self, config: HeadConfig, vocabulary: DraftVocabulary, num_logits: int, depth: int | None
    ) -> None:
        self._is_greedy, self._depth = config.draft_sample_method == "greedy", depth
        ids = vocabulary.chain_ids(num_logits)
        num_ids, target_ids = (0, None) if ids is None else ids
        most = config.num_speculative_tokens
        self._reads_every_id = vocabulary.reads_every_id
        self.rules = ChainRules(num_ids, target_ids, width=config.tree_top_k, num_nodes=most)
        is_same = config.is_dynamic and config.draft_confidence_threshold == 0
        self.is_possible = is_same and config.tree_top_k <= num_ids
        """Whether it can draft at all."""

    def can_draft(self, batch: ProposeBatch, drafts: Sequence[PartialDraft], most_nodes: int) -> bool:
        """Return whether the loop can draft these rows together: no grammar, and at most `most_nodes` nodes of one depth."""
        num_nodes = self.rules.width * len(drafts)
        return self.is_possible and batch.allowed_after is None and 0 < num_nodes <= most_nodes

    def draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], call: ChainCall, places: CachedRows
    ) -> None:
        """Give empty drafts the best nodes of their trees, best first, which the host has not read."""
        rows, width = [draft.row for draft in drafts], self.rules.width
        # A loop has nodes of every request, of which one without a draft takes none.
        depths = [max(1, min(draft.max_depth, self._depth or draft.max_depth)) for draft in drafts]
        is_greedy, reads_every_id = self._is_greedy, self._reads_every_id
        made = call(
            work_of(
                batch, rows, places, depths, self.rules, is_greedy=is_greedy, reads_every_id=reads_every_id
            )
        )
        for place, (draft, depth) in enumerate(zip(drafts, depths, strict=True)):
            count = min(draft.max_nodes, width + (depth - 1) * width * width)
            draft.unread = UnreadNodes(made, place, count)
