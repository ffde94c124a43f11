"""One proposer beside a verify loop."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch

from specdec.adaptive import AdaptiveDepth, MeasuredStep
from specdec.engine.containment.guard import ProposerGuard
from specdec.engine.metrics import EngineMetrics
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.delivery import Delivery
from specdec.engine.speculation.top_k import top_k_of
from specdec.engine.step import Row, Step
from specdec.interfaces.capability import NEEDED_CAPABILITIES, Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.left_out import LeftOut
from specdec.interfaces.pass_memory import VerdictOffsets
from specdec.interfaces.sampler import Verdict
from specdec.interfaces.unread import NeedsTokens

_PAUSED = "the proposer is paused after failures or overruns"
_SUSPENDED = "drafting is suspended: it does not pay now, or not at this batch size"
_REST_SHARE = 4
"""A request returns if it has at most so many tokens for each one that may still come, and again once a token came for so many:
the target computes ten and more tokens at once in the time of one step, and a draft saves about half of the steps."""
_SHORTEST_STAY = 32
"""Half the tokens between the first two returns of a request; doubled with each further one."""


class Speculation:
    """Drives one proposer: how much it may draft, what it is told, what it drafts, and what came of it.

    `Engine` and `HostedProposer`, whose target runs in another engine, both drive theirs by it. In each step they call `plan`,
    `propose` and, once it is over, `observe`; what is decided of the step stands in it.

    Args:
        guard: calls the proposer and contains its failures.
        delivery: builds its batches.
        num_speculative_tokens: k.
        by_batch_size: returns the most nodes of a draft at a batch size (`disable_by_batch_size`,
            `num_speculative_tokens_per_batch_size`).
        draft_depth: lowers the limits where drafts do not pay off; None without `adaptive`.
        metrics: counters that the guard, the delivery and the adaptive depth count into.
    """

    def __init__(
        self,
        guard: ProposerGuard,
        delivery: Delivery,
        num_speculative_tokens: int,
        by_batch_size: Callable[[int], int] | None = None,
        draft_depth: AdaptiveDepth | None = None,
        metrics: EngineMetrics | None = None,
    ) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        self.draft_depth = draft_depth
        self.metrics = metrics or EngineMetrics()
        self.proposer, self.name = guard.proposer, guard.name
        self.capabilities, self.aux_layer_ids = guard.capabilities, guard.aux_layer_ids
        self.needs_hidden = delivery.needs_hidden
        """Whether the proposer reads hidden states."""
        self.num_top_k = delivery.num_top_k
        """Number of the target's most probable ids that it is told of each verified node."""
        self.lines = delivery.lines
        """The lines of the request table, if the proposer reads that."""
        self.drafts_before_verdict = Capability.BEFORE_VERDICT in guard.capabilities
        """Whether the proposer can be asked before the host has the tokens of the last step."""
        self._guard, self._delivery = guard, delivery
        self._by_batch_size = by_batch_size
        self._has_left_out = False

    def plan(self, step: Step, decoding: Several[Row] | None = None) -> Sequence | None:
        """Decide how much is drafted in a step: lowers the caps of its rows.

        Args:
            step: its rows are all that run.
            decoding: those that count as running for `adaptive`; None for all.

        Returns:
            a sample that the proposer left out and that can come back, if that pays; call `take_back`, when there is room.
            One at a time, because the room that the proposer sees may be for one alone. It drafts from the next step on.
        """
        rows, depth = step.rows, self.draft_depth
        most = self.num_speculative_tokens
        if self._by_batch_size is not None:
            most = min(most, self._by_batch_size(len(rows)))
        is_on_target = self._delivery.draft_slots is not None
        step.num_draft_slots = most if is_on_target else 0
        step.is_paused = self._guard.pause_left > 0
        step.is_measured = depth is not None and not step.is_paused
        if depth is not None:
            depth.begin([row.sequence for row in (rows if decoding is None else decoding)], most)
        returning = None
        if most and not step.is_paused and any(row.sequence.left_out is not None for row in rows):
            returning = self._returning(rows, most)
        # `adaptive` is asked for every row, also where 0 is the most: it counts those too.
        for row in rows:
            sequence = row.sequence
            cap = most if sequence.has_proposals else 0
            if self.needs_hidden and sequence.num_with_states < sequence.num_tokens:
                cap = 0  # last prompt chunk: this pass computes its states, and a draft without them is stale
            if is_on_target and row.start < row.num_tokens - 1:
                cap = 0  # a prompt, or a text that is computed again: its rows are not in the cache yet
            if cap and sequence.params.speculative is not None:
                cap = sequence.params.cap_speculation(cap)
            cap = max(0, min(cap, row.cap, sequence.max_num_tokens - row.num_tokens - 1))
            step.may_draft = step.may_draft or cap > 0
            row.cap = cap if depth is None else depth.limit(sequence, cap)
        step.is_suspended = not most or (depth is not None and depth.is_suspended)
        return returning

    def propose(self, step: Step, ended: Several[Sequence] = (), last: Step | None = None) -> CheckedDraft:
        """Deliver new tokens to the proposer and return its draft; its first rows belong to the rows of the step.

        The rows are empty if the proposer failed, is paused after failures, or need not be called.

        Args:
            step: planned; rows with expected tokens get no draft of the proposer's.
            ended: samples that ended in the last step, whose last tokens are delivered.
            last: the last step, if its verdict may be on a device.
        """
        sequences = [row.sequence for row in step.rows]
        verdict = last.verdict_on(sequences) if last is not None and last.verdict and not ended else None
        if self._guard.pause_left and not step.is_paused:  # it failed while samples were placed, after `plan`
            step.is_paused, step.is_measured = True, False
        if step.is_paused:
            self._guard.pause_left -= 1
            self._delivery.limit_waiting(sequences)
        elif not step.is_suspended or self._is_due(sequences, ended, [row.chunk for row in step.rows]):
            caps = [0 if row.expected else row.cap for row in step.rows]
            draft = self._call([*sequences, *ended], [*caps, *[0] * len(ended)], verdict)
            if draft is not None:
                return draft
            step.is_measured = False
        self._delivery.copy_states(sequences)
        return CheckedDraft.empty(len(sequences))

    def draft_behind(self, step: Step) -> CheckedDraft | None:
        """Plan a step behind one whose verdict is not read; return its draft, or None if the proposer needs that."""
        if self.plan(step) is not None or step.is_suspended or step.is_paused:
            return None
        if any(r.sequence.max_num_tokens - r.num_tokens - r.slack - 1 < r.cap for r in step.rows):
            return None  # how long its draft may be depends on what is accepted of the last one
        unread = [*(row.slack + 1 for row in step.rows), *[1] * len(step.ending)]
        return self.draft_late(step, [row.cap for row in step.rows], unread)

    def draft_late(self, step: Step, most: list[int], num_unread: Several[int] = ()) -> CheckedDraft | None:
        """Return the draft of at most so many nodes for a planned step behind one whose tokens are not known."""
        told = [*(row.sequence for row in step.rows), *step.ending]
        verdict = step.behind.offsets if step.behind is not None and num_unread else None
        return self._call(told, most + [0] * len(step.ending), verdict, num_unread)

    def skips_proposer(self, step: Step) -> bool:
        """Plan a step; return whether nothing is drafted in it, nor the proposer called, whatever the last tokens are."""
        self.plan(step)
        may_draft = any(row.cap for row in step.rows)
        return not may_draft and (
            step.is_paused
            or (step.is_suspended and not self._is_due([row.sequence for row in step.rows], ()))
        )

    def deliver_last(
        self, ended: list[Sequence], others: Several[Sequence] = (), *, is_suspended: bool = False
    ) -> None:
        """Deliver the last tokens of ended sequences when no step follows; `others` still run.

        Args:
            is_suspended: see `Step.is_suspended`, of the last step.
        """
        if not self._guard.pause_left and (not is_suspended or self._is_due([], ended)):
            everything = [*others, *ended]
            self._call(everything, [0] * len(everything))

    def forget(self, sequences: Several[Sequence]) -> None:
        """Deliver everything of these again: their hidden states will be computed again."""
        if self.needs_hidden:
            for sequence in sequences:
                self._delivery.forget(sequence)

    def keep_states(self, step: Step, row: Row, kept: list[int]) -> None:
        """Keep the hidden states of committed rows of a pass until the tokens that they predicted are delivered.

        Args:
            step: scored.
            row: before its sample's `num_computed` is advanced.
            kept: rows of the pass: the chunk, and accepted nodes.
        """
        scores = step.scores
        assert scores is not None
        assert scores.hidden_states is not None, (
            "a proposer that reads states is loaded with a scorer that gives them"
        )
        self._delivery.keep_hidden(row.sequence, (scores.hidden_states, *scores.aux_hidden_states), kept)
        if step.owns_states:
            self._delivery.reused_memory.discard(scores.hidden_states.untyped_storage().data_ptr())

    def take_states(self, sequence: Sequence, states: tuple[torch.Tensor, ...]) -> None:
        """Keep the next hidden states of a sample that another engine computed, `[n, H]` of every kind."""
        self._delivery.keep_hidden(sequence, states, list(range(len(states[0]))))

    def give_up(self, sequence: Sequence, reason: str) -> None:
        """Draft nothing for a sample whose hidden states are gone, until it returns."""
        self._delivery.give_up(sequence, reason)

    def take_top_k(self, step: Step, verdict: Verdict) -> None:
        """Note where the most probable ids of a step's nodes are, for the next delivery."""
        self._delivery.top_k = top_k_of(step, self.num_top_k, verdict)

    def count_invalid_nodes(self, num_outside: int) -> None:
        """Count impossible nodes of the proposer that were first read with the verdict on them."""
        self._guard.count_invalid_nodes(num_outside)

    def observe_target(self, seconds: float) -> None:
        """Record what a pass of the target and its verification took, of which a proposer may take a multiple."""
        self._guard.observe_target(seconds)

    def leave_out(self, sequence: Sequence, reason: str) -> None:
        """Draft nothing for a sequence until it returns, at the earliest after a while."""
        sequence.has_proposals = False
        sequence.left_out = LeftOut(reason, can_return=True)
        sequence.num_returns, sequence.returned_at = sequence.num_returns + 1, sequence.num_tokens
        self.metrics.requests_left_out += 1

    def take_back(self, sequence: Sequence) -> None:
        """Have all of a sequence delivered again; rows whose states the proposer reads must be computed again, see `resume`."""
        sequence.has_proposals, sequence.left_out = True, None
        sequence.num_returns, sequence.returned_at = sequence.num_returns + 1, sequence.num_tokens
        self.metrics.requests_returned += 1
        self._delivery.forget(sequence)

    def resume(self, sequence: Sequence, num_known: int) -> int:
        """Return how many of a placed sequence's `num_known` cached rows need not run.

        The proposer is asked how much of the cached prefix it holds; delivery begins after that. One that reads
        hidden states needs those of every token that it does not hold, so the target computes the rows that
        predict these tokens again: always the last row that both hold, and more if the proposer holds less.
        """
        if not self.needs_hidden:
            # A preempted sequence is introduced already: the proposer still has its own state.
            if num_known and not sequence.is_introduced:
                sequence.delivered = self._held(sequence, num_known)
            return num_known
        self._delivery.forget(sequence)
        if not num_known or not sequence.has_proposals:
            return num_known
        if self._guard.pause_left:
            self._delivery.give_up(
                sequence, "was left out when a cached prefix would have had to be computed again for it"
            )
            return num_known
        held = self._held(sequence, num_known)
        sequence.delivered = held
        if sequence.admission_time is None:
            sequence.num_cached_prompt_tokens = min(held, sequence.num_prompt_tokens)
        if held < num_known and sequence.returned_at == sequence.num_tokens:
            self.metrics.tokens_rerun += num_known - held
        elif held < num_known:
            self._guard.note_missing(num_known - held, num_known)
        if held < num_known:
            sequence.num_missing = num_known if self._guard.can_resume else 0
        return max(0, held - 1)

    def observe(self, step: Step) -> None:
        """Record a step of the engine: what its pass and verification took, and what came of its drafts."""
        # On a GPU, the verdict waits for the pass.
        self._guard.observe_target(step.score_s + step.verify_s)
        if step.is_measured:
            drafted = [row.num_nodes if row.chunk else 0 for row in step.sampled]
            all_sample = len(step.sampled) == len(step.rows)
            measured = MeasuredStep(
                [row.sequence for row in step.sampled],
                [row.cap for row in step.sampled],
                drafted,
                [len(row.accepted) for row in step.sampled],
                propose_s=step.propose_s,
                other_s=step.seconds - step.propose_s,
                num_prompt_rows=step.num_prompt_tokens if all_sample else None,
                num_rows=sum(row.chunk for row in step.rows) + sum(drafted),
            )
            self.observe_measured(measured, may_draft=step.may_draft)

    def observe_measured(self, measured: MeasuredStep, *, may_draft: bool) -> None:
        """Record what a step cost; `may_draft` says whether the configuration allowed a draft in it."""
        assert self.draft_depth is not None
        self.draft_depth.observe(measured)
        if may_draft and measured.sequences:
            depth = max(measured.limits)
            self.metrics.steps_without_drafts += self.draft_depth.is_suspended and not depth
            self.metrics.steps_with_shorter_drafts += 0 < depth < self.num_speculative_tokens

    def note_undrafted(self, step: Step, sequence: Sequence, num_emitted: int) -> None:
        """Count tokens of a sequence that were emitted without a draft, if none could be made."""
        reason = None if sequence.left_out is None else sequence.left_out.reason
        if reason is None and step.is_paused:
            reason = _PAUSED
        elif reason is None and step.is_suspended and sequence.has_proposals:
            reason = _SUSPENDED
        if reason is not None:
            sequence.without_drafts[reason] = sequence.without_drafts.get(reason, 0) + num_emitted
            self.metrics.tokens_without_drafts += num_emitted

    def finish(self, sequences: Several[Sequence], reason: FinishReason | None = None) -> None:
        """Tell the proposer that sequences ended.

        Args:
            sequences: those that it never met are left out.
            reason: None for the reason of each, ERROR where its last tokens were not delivered.
        """
        groups: dict[FinishReason, list[str]] = {}
        for sequence in sequences:
            told = reason
            if told is None:
                is_complete = sequence.delivered == sequence.num_tokens
                told = sequence.finish_reason if is_complete else FinishReason.ERROR
            assert told is not None
            if sequence.is_introduced:
                groups.setdefault(told, []).append(sequence.row_id)
        for told, row_ids in groups.items():
            self._guard.finish(row_ids, told)

    def _returning(self, rows: Several[Row], most: int) -> Sequence | None:
        """Return a sample that can come back; see `plan`."""
        if any(row.start < row.sequence.returned_at - 1 for row in rows):
            return None  # one is returning
        for row in rows:
            why = row.sequence.left_out
            is_decoding = row.start == row.num_tokens - 1
            if why is not None and why.can_return and is_decoding and self._pays(row.sequence, most):
                return row.sequence
        return None

    def _is_due(
        self, sequences: Several[Sequence], ended: Several[Sequence], chunks: Several[int] | None = None
    ) -> bool:
        """Return whether to call a suspended proposer, which drafts nothing: it takes most tokens later."""
        if self._delivery.is_overdue(sequences, chunks) or self._delivery.is_missing([*sequences, *ended]):
            return True
        # It may miss last tokens if it does not learn from ids alone.
        learns = not self.needs_hidden and not self._guard.capabilities & NEEDED_CAPABILITIES
        return bool(ended) and learns

    def _call(
        self, sequences: list[Sequence], max_nodes: list[int], verdict: VerdictOffsets | None = None,
        num_unread: Several[int] = (),
    ) -> CheckedDraft | None:  # fmt: skip
        """Return the proposer's draft, or None if it failed: then its state is dropped and all is delivered again.

        Sequences whose hidden states are gone cannot be delivered again and get no further drafts. See `ProposeBatch` for
        `verdict` and `num_unread`. Also None, with nothing delivered, if the proposer needs the unread tokens.
        """
        batch = self._delivery.build(sequences, max_nodes, verdict, num_unread)
        try:
            draft = self._guard.propose(batch, max_nodes)
        except NeedsTokens:
            self._delivery.take_back(sequences, batch)
            return None
        finally:
            if self._delivery.draft_slots is not None:
                self._delivery.draft_slots.close()
        if draft is None:
            self._guard.finish([sequence.row_id for sequence in sequences], FinishReason.ERROR)
            for sequence in sequences:
                sequence.is_introduced = False
                if self.needs_hidden and sequence.delivered:
                    self._delivery.give_up(sequence, "failed, and would have to be told everything again")
                self._delivery.forget(sequence)
        elif self._guard.left_out or self._has_left_out:
            self._note_left_out(sequences)
        return draft

    def _note_left_out(self, sequences: list[Sequence]) -> None:
        """Note which sequences the proposer leaves out, and which it does no longer."""
        told = self._guard.left_out
        self._has_left_out = bool(told)
        for sequence in sequences:
            if sequence.has_proposals:
                why = told.get(sequence.row_id)
                self.metrics.requests_left_out += why is not None and sequence.left_out is None
                sequence.left_out = why

    def _pays(self, sequence: Sequence, most: int) -> bool:
        """Return whether drafts of a sequence will be worth its return, and `adaptive` allows any."""
        num_rows = sequence.num_tokens if self.needs_hidden else 0
        if num_rows > _REST_SHARE * (sequence.max_num_tokens - sequence.num_tokens):
            return False
        stay = max(num_rows // _REST_SHARE, _SHORTEST_STAY << min(sequence.num_returns, 16))
        if sequence.num_returns and sequence.num_tokens - sequence.returned_at < stay:
            return False
        return self.draft_depth is None or self.draft_depth.limit(sequence, most) > 0

    def _held(self, sequence: Sequence, num_known: int) -> int:
        held = self._guard.resume(sequence.row_id, sequence.token_ids[:num_known])
        sequence.is_introduced = True  # it may keep something of it, whatever it holds
        return held
