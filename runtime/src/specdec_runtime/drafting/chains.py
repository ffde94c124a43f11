"""Drafts chains in one compiled call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from specdec import SamplingParams
from specdec.interfaces import NoiseKeys, ProposeBatch
from specdec_runtime.drafting.partial_draft import PartialDraft, UnreadNodes
from specdec_runtime.drafting.passes import CachedRows, Int64s
from specdec_runtime.drafting.reading import read_together
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.interfaces.chain import ChainRules, Chains, ChainWork

ChainCall = Callable[[ChainWork], Chains]
"""Drafts the requested chains from logits or rows that are already bound to the call."""
_NO_LIMIT = 2**31


class ChainLoop:
    """Drafts with a runner's compiled loop, if the loop supports what a batch needs.

    Args:
        method: `greedy`, `coupled` or `probabilistic`.
        vocabulary: the ids that may be drafted.
        num_logits: number of logits of the draft.
        threshold: a draft ends after the first token with a probability below this; 0 for never.
        eos_token_ids: ids that end a text.
        siblings: candidates of each depth.
        masks: the mask token and whether the row of the last token guesses nothing, if one pass guesses all tokens.
        margin: in place of a threshold, a draft ends after the first token that is ahead of the next best one by less than
            this, in logits over the temperature with the noise of coupled draws; 0 for never. For loops of the CPU.
    """

    def __init__(
        self,
        method: str,
        vocabulary: DraftVocabulary,
        num_logits: int,
        threshold: float,
        eos_token_ids: tuple[int, ...],
        margin: float = 0.0,
        masks: tuple[int | None, bool] = (None, False),
        siblings: int = 1,
    ) -> None:
        self._method, self._eos_token_ids = method, eos_token_ids
        ids = vocabulary.chain_ids(num_logits)
        self.is_possible = ids is not None
        """Whether it can draft at all."""
        num_ids, target_ids = (0, None) if ids is None else ids
        self._reads_every_id = vocabulary.reads_every_id
        if margin > 0:
            threshold = 1.0 / (1.0 + math.exp(-margin))
        is_drawn = method == "probabilistic"
        self._keeps_rows = masks[0] is None and siblings == 1
        mask_id, skips_last = masks
        self.rules = ChainRules(
            num_ids,
            target_ids,
            is_drawn,
            threshold,
            margin > 0,
            mask_id=mask_id,
            skips_last=skips_last,
            siblings=siblings,
        )
        if siblings > 1:  # of which q is not kept, nor where it ends
            self.is_possible = not is_drawn and threshold == 0 and siblings <= num_ids

    def can_draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], max_rows: int, *, is_recorded: bool = False
    ) -> bool:
        """Return whether the loop can draft these rows together: no grammar, and where q is kept top-k, top-p and min-p only if
        it is a recorded one."""
        if not self.is_possible or batch.allowed_after is not None or not 0 < len(drafts) <= max_rows:
            return False
        if is_recorded:
            return True
        if self.rules.siblings > 1:
            return False
        if self._method != "probabilistic":
            return True
        return not any(_has_cuts(batch.sampling_params[draft.row]) for draft in drafts)

    def draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], call: ChainCall, places: CachedRows,
        more_ids: Sequence[Int64s] = (),
    ) -> tuple[list[list[int | None]], Chains]:  # fmt: skip
        """Fill empty drafts; rows with a lower limit end earlier than others. `more_ids` are those of `ChainWork`.

        Returns:
            for each draft the tokens that have been run: all chosen tokens, up to its depth limit, but the last, None for those
            that are not read, and none where masks guess them or where another candidate may be accepted; and the result of the
            call.
        """
        rows = [draft.row for draft in drafts]
        depths = [min(draft.max_depth, draft.max_nodes) for draft in drafts]
        params = [batch.sampling_params[row] for row in rows]
        work = work_of(
            batch, rows, places, depths, self.rules, is_greedy=self._method == "greedy",
            reads_every_id=self._reads_every_id, more_ids=more_ids,
        )  # fmt: skip
        chains = call(work)
        if chains.token_ids.is_cuda and not self.rules.threshold:
            has_q = chains.draft_probs.numel() > 0
            for place, (draft, depth) in enumerate(zip(drafts, depths, strict=True)):
                count = min(depth * self.rules.siblings, draft.max_nodes)
                draft.unread = UnreadNodes(chains, place, count, has_q and not params[place].is_greedy)
            return [[None] * (depth - 1 if self._keeps_rows else 0) for depth in depths], chains
        tokens, confidences = _read(chains, len(drafts))
        for index, (draft, depth) in enumerate(zip(drafts, depths, strict=True)):
            ends = () if params[index].ignore_eos else self._eos_token_ids
            length = min(depth, len(tokens[index]))
            length = next((i + 1 for i in range(length) if tokens[index][i] in ends), length)
            if self.rules.threshold:
                unsure = (i + 1 for i in range(length) if confidences[index][i] < self.rules.threshold)
                length = next(unsure, length)
                draft.confidences = confidences[index][:length]
            draft.token_ids = tokens[index][:length]
            draft.parents = list(range(-1, length - 1))
            if self.rules.is_drawn and not params[index].is_greedy:
                draft.draft_probs = {i: chains.draft_probs[index, i] for i in range(length)}
        counts = [max(0, depth - 1) if self._keeps_rows else 0 for depth in depths]
        return [[*row[: min(count, len(row) - 1)]] for row, count in zip(tokens, counts, strict=True)], chains


def example_of(num_steps: int, rules: ChainRules) -> ChainWork:
    """Return the draft of one request, for loops that are recorded before there is any."""
    return ChainWork([0], [0], num_steps, [0.0], NoiseKeys(*np.zeros((3, 1), np.int64)), rules)


def work_of(
    batch: ProposeBatch,
    rows: Sequence[int],
    places: CachedRows,
    depths: Sequence[int],
    rules: ChainRules,
    *,
    is_greedy: bool,
    reads_every_id: bool,
    more_ids: Sequence[Int64s] = (),
) -> ChainWork:
    """Return what a loop drafts for rows of a batch.

    Args:
        batch: the step's batch.
        rows: `[R]` its rows.
        places: their rows in the cache.
        depths: `[R]` how deep each draft may be; one of 0 is made and not used.
        rules: how tokens are chosen.
        is_greedy: whether no noise is used, whatever the requests' temperatures are.
        reads_every_id: whether the draft has all ids that a verdict may emit.
        more_ids: see `ChainWork`.
    """
    params = [batch.sampling_params[row] for row in rows]
    is_cut = not is_greedy and any(map(_has_cuts, params))
    # A verdict is followed if it is on just these rows, and emits just their new tokens.
    is_all = [*rows] == [*range(len(batch.counts))] and reads_every_id
    num_emitted = [count + 1 for count in batch.last_num_accepted]
    is_next = is_all and (batch.num_unread or num_emitted == [*batch.counts])
    return ChainWork(
        *places,
        max(depths),
        [0.0 if is_greedy else p.temperature for p in params],
        batch.draws.coupled_keys(rows),
        rules,
        [(p.top_k, p.top_p, p.min_p) for p in params] if is_cut else (),
        [max(1, depth) for depth in depths],
        [batch.num_prompt_tokens[row] + (batch.sampling_params[row].max_tokens or _NO_LIMIT) for row in rows],
        batch.verdict if is_next else None,
        bool(batch.num_unread),
        more_ids,
    )


def _has_cuts(params: SamplingParams) -> bool:
    """Return whether a request's distribution is truncated, which needs `apply_temperature_and_truncation`."""
    return not params.is_greedy and (params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0)


def _read(chains: Chains, count: int) -> tuple[list[list[int]], list[list[float]]]:
    """Return the tokens of the first drafts, and the confidences in them if there are any."""
    if not chains.confidences.shape[1]:
        return chains.token_ids[:count].tolist(), []
    ids, confidences = read_together([chains.token_ids[:count], chains.confidences[:count]])
    return ids.astype(int).tolist(), confidences.tolist()
