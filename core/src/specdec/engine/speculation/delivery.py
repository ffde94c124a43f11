"""Delivers new committed tokens, and the hidden states that predicted them, to the proposer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Ids
from itertools import pairwise

import numpy as np
import torch

from specdec.engine.metrics import EngineMetrics
from specdec.engine.request_lines import RequestLines
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.plugin_view import EngineDraws, PluginView
from specdec.engine.speculation.top_k import TopK, packed_top_k
from specdec.interfaces.batch import ProposeBatch, TokenIds
from specdec.interfaces.draft_slots import DraftSlots
from specdec.interfaces.left_out import LeftOut
from specdec.interfaces.pass_memory import VerdictOffsets

logger = logging.getLogger("specdec")

_MAX_KEPT = 1024
"""Most tokens of a sequence whose states are kept for a suspended proposer; one prompt chunk may be longer."""
_MAX_WAITING = 2048
"""Maximum number of tokens of all sequences whose states wait; beyond it a suspended proposer is called, and
a paused one loses the longest requests, because no memory is reserved for more."""
_MAX_PIECES = 16
"""Number of steps whose states of one sequence are kept apart before they are concatenated."""
_NONE = np.empty(0, np.int32)


class Delivery:
    """Builds one `ProposeBatch` per step; every running sequence has a row in it.

    Args:
        no_states: empty states `[0, H]` of every kind that is delivered with tokens, the final ones first; ()
            if the proposer needs none.
        device: device of the tensors.
        num_top_k: number of the target's most probable ids that are delivered for each verified node; 0 for none.
        metrics: requests without states are counted there.
        draft_slots: where the proposer may write in the target's cache; None if it does not draft there.
        lines: the lines of the request table, if the proposer reads that.
    """

    def __init__(
        self,
        *,
        no_states: tuple[torch.Tensor, ...],
        device: torch.device,
        num_top_k: int = 0,
        metrics: EngineMetrics | None = None,
        draft_slots: DraftSlots | None = None,
        lines: RequestLines | None = None,
    ) -> None:
        self.lines = lines
        self.num_top_k = num_top_k
        self.top_k: Callable[[], dict[Sequence, TopK]] | None = None
        """What finds the target's most probable ids of one step until the next call; it replaces a step before."""
        self.draft_slots = draft_slots
        self.needs_hidden = bool(no_states)
        self._no_states = no_states
        self._flags = torch.empty(0, dtype=torch.bool, device=device)  # all True
        self._device = device
        self._metrics = metrics or EngineMetrics()
        self._reasons: set[str] = set()
        self._untaken = list[list[tuple[torch.Tensor, ...]]]()
        """Hidden states of the sequences of the last batch, if the proposer may not take it."""
        self.reused_memory = set[int]()
        """Addresses of memory of kept states that the next pass writes to."""

    def build(
        self,
        sequences: list[Sequence],
        max_nodes: list[int],
        verdict: VerdictOffsets | None = None,
        num_unread: Ids[int] = (),
    ) -> ProposeBatch:
        """Return this step's batch, and mark its tokens and the last draft's result as delivered.

        With `num_unread` the proposer may not take it (`take_back`). See `ProposeBatch` for that and `verdict`.
        """
        starts = [sequence.delivered for sequence in sequences]
        # With states as many tokens as there are states, even if the sequence has ended and released its cache.
        ends = [s.num_with_states if self.needs_hidden else s.num_tokens for s in sequences]
        views = [(sequence.plugin_view or _plugin_view(sequence)).tokens(sequence) for sequence in sequences]
        pieces = [view[a:b] for view, a, b in zip(views, starts, ends, strict=True) if b > a]
        tokens: TokenIds = pieces[0] if len(pieces) == 1 else np.concatenate([_NONE, *pieces])
        tokens.flags.writeable = False
        hidden, aux, has_hidden = None, tuple[torch.Tensor, ...](), None
        if self.needs_hidden and not num_unread:
            hidden, aux, has_hidden = self._hidden(sequences, starts)
        if self.lines is not None:
            self.lines.place([sequence for sequence in sequences if not sequence.is_finished])
        batch = ProposeBatch(
            request_ids=tuple(s.row_id for s in sequences),
            max_nodes=tuple(max_nodes),  # a copy: the draft is checked against the list
            num_tokens=[s.num_tokens for s in sequences],
            num_prompt_tokens=[s.num_prompt_tokens for s in sequences],
            starts=starts,
            counts=[end - start for start, end in zip(starts, ends, strict=True)],
            new_token_ids=tokens,
            last_num_drafted=[s.last_num_drafted for s in sequences],
            last_num_accepted=[s.last_num_accepted for s in sequences],
            sampling_params=tuple(s.shown_params for s in sequences),
            draws=EngineDraws(sequences, self._device),
            token_ids_of=views.__getitem__,
            allowed_after=_allowed_after(sequences, views) if any(s.rules for s in sequences) else None,
            hidden_states=hidden,
            aux_hidden_states=aux,
            has_hidden=has_hidden,
            top_k=None if self.top_k is None else packed_top_k(sequences, self.top_k()),
            first_slots=()
            if self.draft_slots is None
            else self._lend(self.draft_slots, sequences, max_nodes),
            table=None if self.lines is None else self.lines.table.lent(),
            lines=() if self.lines is None else [max(s.line, 0) for s in sequences],
            last_draft_at=[s.last_draft_at for s in sequences],
            verdict=verdict,
            num_unread=num_unread,
        )
        self._untaken = [sequence.deliverable_hidden for sequence in sequences] if num_unread else []
        for sequence, end in zip(sequences, ends, strict=True):
            sequence.delivered = end
            sequence.is_introduced = True
            sequence.last_num_drafted = sequence.last_num_accepted = sequence.last_draft_at = 0
            sequence.deliverable_hidden = []
        self.top_k = None
        self.reused_memory.clear()
        return batch

    def take_back(self, sequences: list[Sequence], batch: ProposeBatch) -> None:
        """Deliver the last batch again with the next one: the proposer needs the tokens that were not read."""
        for place, (sequence, hidden) in enumerate(zip(sequences, self._untaken, strict=True)):
            sequence.delivered, sequence.deliverable_hidden = batch.starts[place], hidden
            sequence.last_num_drafted = batch.last_num_drafted[place]
            sequence.last_num_accepted = batch.last_num_accepted[place]
            sequence.last_draft_at = batch.last_draft_at[place]

    def give_up(self, sequence: Sequence, reason: str) -> None:
        """Stop drafting for a sequence whose states are gone, until it returns; counted, each reason logged once."""
        sequence.deliverable_hidden.clear()
        if not sequence.has_proposals or sequence.is_finished:
            return
        sequence.has_proposals = False
        sequence.left_out = LeftOut(f"the proposer reads hidden states, and {reason}", can_return=True)
        self._metrics.requests_left_out += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            logger.warning(
                "a request is left without drafts: the proposer reads hidden states, and %s; output is not affected (logged "
                "once, counted in specdec:requests_left_out)", reason,
            )  # fmt: skip

    def keep_hidden(self, sequence: Sequence, passed: tuple[torch.Tensor, ...], rows: list[int]) -> None:
        """Keep the states of newly computed rows until the tokens they predicted are delivered.

        They accumulate while the proposer is suspended or paused. Beyond a limit they are dropped, see
        `give_up`.

        Args:
            sequence: the sequence, before its `num_computed` is advanced.
            passed: states `[T, H]` of the pass that computed the rows, of every kind, the final ones first.
            rows: committed rows of the pass: the chunk and the accepted nodes.
        """
        if not self.needs_hidden or not sequence.has_proposals:
            return
        kept = sum(states[0].shape[0] for states in sequence.deliverable_hidden)
        known = sequence.delivered + kept - sequence.num_computed - 1
        if known > 0:  # the target runs rows again whose states the proposer has
            rows = rows[known:]
            if not rows:
                return
        if kept and kept + len(rows) > _MAX_KEPT:
            self.give_up(
                sequence,
                f"was not called before more than {_MAX_KEPT} states of the request would have waited for it",
            )
            return
        is_first = sequence.num_computed == sequence.delivered == 0
        self.reused_memory.add(passed[0].untyped_storage().data_ptr())
        gaps = [place for place in range(1, len(rows)) if rows[place] > rows[place - 1] + 1]
        for start, end in pairwise((0, *gaps, len(rows))):
            _keep(sequence, passed, rows[start:end], is_first=is_first and not start)

    def copy_states(self, sequences: Ids[Sequence]) -> None:
        """Copy the states of the last passes, whose memory the next one writes to, by one launch."""
        last = list[tuple[list[tuple[torch.Tensor, ...]], int]]()
        for rows in (sequence.deliverable_hidden for sequence in sequences):
            for at in reversed(range(len(rows))):
                if rows[at][0].untyped_storage().data_ptr() not in self.reused_memory:
                    break  # those of earlier passes are copies
                last.append((rows, at))
        if last:
            joined, sizes = _joined([rows[at] for rows, at in last]), [len(rows[at][0]) for rows, at in last]
            for (rows, at), *states in zip(last, *(kind.split(sizes) for kind in joined), strict=True):
                rows[at] = tuple(states)
        self.reused_memory.clear()

    def is_overdue(self, sequences: Ids[Sequence], chunks: Ids[int] | None = None) -> bool:
        """Return whether a suspended proposer must be called, because too many states wait for it.

        Args:
            sequences: the running sequences.
            chunks: number of tokens that each of them runs in this step; None if unknown: all that have not
                run. Their states are kept only if there is room for all.
        """
        if not self.needs_hidden:
            return False
        waiting = [s.num_with_states - s.delivered if s.has_proposals else 0 for s in sequences]
        if max(waiting, default=0) > _MAX_KEPT // 2 or sum(waiting) > _MAX_WAITING:
            return True
        coming = [s.num_tokens - s.num_with_states for s in sequences] if chunks is None else chunks
        return any(count and count + chunk > _MAX_KEPT for count, chunk in zip(waiting, coming, strict=True))

    def limit_waiting(self, sequences: list[Sequence]) -> None:
        """Give up the sequences with the most waiting states until the rest fit; for a paused proposer."""
        if not self.needs_hidden:
            return
        waiting = {s: sum(len(states[0]) for states in s.deliverable_hidden) for s in sequences}
        num_waiting = sum(waiting.values())
        for sequence in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if num_waiting <= _MAX_WAITING:
                return
            num_waiting -= waiting[sequence]
            self.give_up(
                sequence, f"was paused while more than {_MAX_WAITING} states of all requests waited for it"
            )

    def is_missing(self, sequences: list[Sequence]) -> bool:
        """Return whether a cached prefix that the proposer did not hold can now be delivered."""
        return any(s.delivered < s.num_missing <= s.num_with_states for s in sequences)

    def forget(self, sequence: Sequence) -> None:
        """Deliver everything again from position 0; kept states are dropped and must be recomputed."""
        sequence.delivered = sequence.num_missing = 0
        sequence.plugin_view = None
        sequence.deliverable_hidden.clear()

    def _lend(self, slots: DraftSlots, sequences: list[Sequence], max_nodes: list[int]) -> list[int]:
        """Open the slots of this step's drafts in the target's cache; returns the first slot of each sequence."""
        deepest = max(max_nodes, default=0)
        rows = [s for s, most in zip(sequences, max_nodes, strict=True) if most]
        ends = [s.num_tokens for s in rows]
        slots.open([s.first_slot for s in rows], [end - 1 for end in ends], [end + deepest for end in ends])
        return [s.first_slot for s in sequences]

    def _hidden(
        self, sequences: list[Sequence], starts: list[int]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor]:
        kept = [states for s in sequences for states in s.deliverable_hidden] or [self._no_states]
        hidden, *aux = _joined(kept)  # copies even of a single piece, whose memory may belong to the pass
        row, first_rows = 0, list[int]()
        for sequence, start in zip(sequences, starts, strict=True):
            if start == 0 and sequence.deliverable_hidden:
                first_rows.append(row)
            row += sum(states[0].shape[0] for states in sequence.deliverable_hidden)
        if self._device.type == "cpu":
            known = np.ones(row, np.bool_)
            known[first_rows] = False
            return hidden, tuple(aux), torch.from_numpy(known)
        if row > self._flags.shape[0]:
            self._flags = torch.ones(row, dtype=torch.bool, device=self._device)
        flags = self._flags[:row].clone() if first_rows else self._flags[:row]  # a copy costs a launch
        for row in first_rows:
            flags[row] = False
        return hidden, tuple(aux), flags


def _joined(pieces: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Return the states of pieces one after the other, of every kind; all of them by one launch."""
    return torch.cat([state for kind in zip(*pieces, strict=True) for state in kind]).chunk(len(pieces[0]))


def _keep(sequence: Sequence, passed: tuple[torch.Tensor, ...], rows: Ids[int], *, is_first: bool) -> None:
    """Keep the states of a sequence's rows, which follow each other in a pass; no state predicted the first token."""
    pieces = sequence.deliverable_hidden
    states = tuple([state[rows[0] : rows[-1] + 1] if rows else state[:0] for state in passed])
    if is_first:
        states = tuple(torch.cat((state.new_zeros(1, state.shape[1]), state)) for state in states)
    pieces.append(states)
    if len(pieces) > _MAX_PIECES:
        pieces[:] = [tuple(torch.cat(column) for column in zip(*pieces, strict=True))]


def _plugin_view(sequence: Sequence) -> PluginView:
    """Begin to show a sequence to the proposer."""
    sequence.plugin_view = PluginView(sequence)
    return sequence.plugin_view


def _allowed_after(
    sequences: list[Sequence], views: list[TokenIds]
) -> Callable[[int, Ids[int]], torch.Tensor | None] | None:
    """Return the implementation of `ProposeBatch.allowed`, or None if no row has a grammar."""
    if all(sequence.rules is None or sequence.rules.grammar is None for sequence in sequences):
        return None
    of_rows = [
        None if sequence.plugin_view is None else sequence.plugin_view.allowed(view)
        for sequence, view in zip(sequences, views, strict=True)
    ]

    def allowed(row: int, path: Ids[int]) -> torch.Tensor | None:
        after = of_rows[row]
        return None if after is None else after(path)

    return allowed
