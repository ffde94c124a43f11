"""Commits a verdict: tokens, counters, hidden states; an accepted tree path's cache rows move over rejected ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from specdec.engine.containment import Contained, fail
from specdec.engine.kv_manager import KVManager
from specdec.engine.scheduler import SchedulerOutput
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.speculation.top_k import top_k_of
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.sampler import Verdict
from specdec.interfaces.score_batch import SlotCache
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import sent_together
from specdec.logits.logprobs import Listing, LogprobRecord, listings
from specdec.outputs import DraftStep
from specdec.samplers.paths import NOT_NUMBERS

logger = logging.getLogger("specdec")

Moves = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Slots of accepted rows, and where they belong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The part of the verdict on one sequence that is kept."""

    row: int
    """Its row of the draft."""
    num_drafted: int
    nodes: list[int]
    """Accepted nodes, from depth 1 on."""
    emitted: list[int]
    """Tokens to append: those of the nodes and, unless the sample ended before it, the correction or bonus token."""


class Committer:
    """Applies verdicts to sequences.

    Args:
        kv: publishes written blocks.
        cache: the KV cache, whose rows are compacted after a tree.
        speculation: takes the hidden states; None without a proposer.
    """

    def __init__(self, kv: KVManager, cache: SlotCache, speculation: Speculation | None) -> None:
        self._kv = kv
        self._cache = cache
        self._delivery = None if speculation is None else speculation.delivery

    def commit(
        self, scheduled: SchedulerOutput, draft: CheckedDraft, scores: Scores, verdict: Verdict
    ) -> list[Outcome]:
        """Commit one step; sequences that end are marked finished. Returns what was kept for each that sampled."""
        outcomes: list[Outcome] = []
        sound = verdict.is_sound
        decoding = [scheduled.sequences[index] for index in scheduled.decoding]
        delivery = self._delivery
        if delivery is not None and delivery.num_top_k:
            delivery.keep_top_k(top_k_of(decoding, draft, scores, delivery.num_top_k, sound))
        listed = verdict.listed
        if listed is None and any(sequence.logprobs is not None for sequence in decoding):
            listed = _listed(decoding, scores, verdict)
        row_of_decoding = {index: row for row, index in enumerate(scheduled.decoding)}
        num_prompt_rows, moves = 0, list[Moves]()
        for index, (sequence, chunk) in enumerate(zip(scheduled.sequences, scheduled.chunks, strict=True)):
            if chunk == 0:
                continue
            missing = sequence.missing_prompt_rows(chunk)
            if missing:
                with Contained(sequence, "recording log probabilities of the prompt"):
                    _record_prompt(sequence, missing, scores, num_prompt_rows)
                num_prompt_rows += len(missing)
            row = row_of_decoding.get(index)
            outcome = None
            if row is not None and sound is not None and _spoils(draft, row, scores, verdict, sound):
                self._repeat_without_draft(sequence)
                outcomes.append(Outcome(row, len(draft.rows[row]), [], []))
                continue
            if row is not None:
                outcome = _judge(sequence, row, draft, scores, verdict, sound, listed)
                outcomes.append(outcome)
                _count(sequence, outcome, is_expected=index in scheduled.expected)
            nodes = [] if outcome is None else outcome.nodes
            if nodes and nodes[-1] != len(nodes) - 1:  # the accepted rows of a chain are contiguous already
                first = sequence.first_slot + sequence.num_computed + chunk
                moves.append((first + np.array(nodes), np.arange(first, first + len(nodes))))
            if delivery is not None and delivery.needs_hidden:
                rows = [scores.first_rows[index] + row for row in _choosers(chunk, outcome)]
                delivery.keep_hidden(sequence, _states(scores), rows)
            sequence.num_computed += chunk + len(nodes)
            if outcome is not None and outcome.emitted:
                self._append(sequence, draft, scores, outcome)
            self._kv.publish(sequence)
        if moves:
            together = [np.concatenate(slots) for slots in zip(*moves, strict=True)]
            together += [] if delivery is None else [delivery.path_rows]
            sources, destinations, *paths = sent_together(together, self._cache.device)
            self._cache.gather(sources, destinations)
            if delivery is not None and len(paths[0]):
                delivery.keep_paths(_states(scores), paths[0])
        return outcomes

    def _repeat_without_draft(self, sequence: Sequence) -> None:
        """Commit nothing of a sequence, so that its rows run again in the next step, and stop drafting for it."""
        sequence.has_proposals, sequence.expected = False, None
        logger.warning(
            "request %s gets no further drafts: with drafted tokens in the pass the logits are not numbers; the step runs "
            "again without them, and output is not affected", sequence.request_id,
        )  # fmt: skip

    def _append(self, sequence: Sequence, draft: CheckedDraft, scores: Scores, outcome: Outcome) -> None:
        """Append the emitted tokens, and record their draft step if requested."""
        nodes, emitted = outcome.nodes, outcome.emitted
        sequence.append(emitted, len(nodes))
        if sequence.expected is not None:
            sequence.expected.advance(sequence.output_token_ids, len(emitted))
        if sequence.draft_steps is not None:
            seconds = perf_counter() - sequence.arrival_time
            sequence.draft_steps.append(self._step_of(draft, outcome.row, nodes, len(emitted), seconds))
        if sequence.rules is not None and sequence.rules.grammar is not None:
            with Contained(sequence, "advancing the grammar"):
                sequence.rules.grammar.advance(emitted)

    def _step_of(
        self, draft: CheckedDraft, row: int, nodes: list[int], num_emitted: int, seconds: float
    ) -> DraftStep:
        """Return the record of one row of a step's draft; `nodes` are the accepted ones."""
        token_ids = list(draft.rows[row])
        parents = list(range(-1, len(token_ids) - 1))
        if draft.parents is not None:
            parents = list(draft.parents[row])
        proposer = draft.proposers[row] if token_ids and draft.proposers else None
        return DraftStep(proposer, token_ids, parents, nodes, num_emitted, seconds)


def _choosers(chunk: int, outcome: Outcome | None) -> list[int]:
    """Return the rows of a sequence that predicted a committed token: a stop may cut the draft after others, or no token could
    be chosen."""
    if outcome is None:
        return list(range(chunk))
    num_choosers = chunk if outcome.emitted else chunk - 1
    nodes = outcome.nodes[: max(0, len(outcome.emitted) - 1)]
    return [*range(num_choosers), *(chunk + node for node in nodes)]


def _states(scores: Scores) -> tuple[torch.Tensor, ...]:
    """Return the states `[T, H]` of a pass, of every kind, the final ones first."""
    assert scores.hidden_states is not None
    return (scores.hidden_states, *scores.aux_hidden_states)


def _count(sequence: Sequence, outcome: Outcome, *, is_expected: bool) -> None:
    """Count a sequence's verified draft."""
    num_accepted = len(outcome.nodes)
    if not outcome.num_drafted:  # the proposer may still have to learn of an earlier draft
        return
    sequence.drafts.count(outcome.num_drafted, num_accepted)
    if not is_expected:
        sequence.last_num_drafted, sequence.last_num_accepted = outcome.num_drafted, num_accepted
    elif sequence.expected is not None:
        sequence.expected.observe(outcome.num_drafted, num_accepted)


def _spoils(draft: CheckedDraft, row: int, scores: Scores, verdict: Verdict, sound: Ids[bool]) -> bool:
    """Return whether a row with a draft cannot be judged, because logits on its path are not numbers.

    The draft may be the cause: a hidden key has weight 0 in attention, and 0 times NaN or infinity is NaN.
    """
    if not draft.rows[row]:
        return False
    return not all(sound[scores.row_of(row, node)] for node in (-1, *verdict.accepted_nodes[row]))


def _judge(
    sequence: Sequence, row: int, draft: CheckedDraft, scores: Scores, verdict: Verdict,
    sound: Ids[bool] | None, listed: Mapping[int, Ids[Listing]] | None,
) -> Outcome:  # fmt: skip
    """Return the kept part of a verdict, cut at the end of the text and where no token could be chosen.

    Nothing is kept if work for this sample fails here or failed earlier in the step.
    """
    num_drafted, first = len(draft.rows[row]), scores.row_of(row, -1)
    nodes, token_ids = list(verdict.accepted_nodes[row]), list(verdict.token_ids[row])
    dead = _dead_end(sequence, nodes, sound and sound[first : first + num_drafted + 1])
    if dead is not None:
        token_ids = token_ids[: dead[0]]
    nothing = Outcome(row, num_drafted, [], [])
    if sequence.is_finished:
        return nothing
    with Contained(sequence, "processing its tokens"):
        emitted = sequence.stop_checker.accept(sequence, token_ids)
        outcome = Outcome(row, num_drafted, nodes[: len(emitted)], emitted)
        if sequence.logprobs is not None and emitted:
            _record(sequence.logprobs, scores, outcome, (listed or {}).get(row))
        if dead is not None and sequence.finish_reason is None:
            _, dead_row, reason = dead
            fail(sequence, reason)
            _log_cause(sequence, dead_row)
        return outcome
    return nothing


def _listed(decoding: list[Sequence], scores: Scores, verdict: Verdict) -> dict[int, list[Listing]]:
    """Return, by row of the draft, the log probabilities of a verdict's tokens, for requests that want few of each."""
    records = [sequence.logprobs for sequence in decoding]
    wanted = {row: r.num_few for row, r in enumerate(records) if r is not None and r.num_few >= 0}
    if not wanted:
        return {}
    rows = [scores.row_of(row, node) for row in wanted for node in (-1, *verdict.accepted_nodes[row])]
    tokens = [token_id for row in wanted for token_id in verdict.token_ids[row]]
    found = iter(listings(scores.raw_logits, rows, tokens, max(wanted.values())))
    return {row: [next(found) for _ in verdict.token_ids[row]] for row in wanted}


def _record(record: LogprobRecord, scores: Scores, outcome: Outcome, listed: Ids[Listing] | None) -> None:
    """Record log probabilities of the emitted tokens."""
    if listed is not None:
        record.take(outcome.emitted, listed[: len(outcome.emitted)])
        return
    chosen_by = [scores.row_of(outcome.row, node) for node in (-1, *outcome.nodes)][: len(outcome.emitted)]
    index = torch.tensor(chosen_by, device=scores.raw_logits.device)
    record.add(scores.raw_logits[index], outcome.emitted)


def _record_prompt(sequence: Sequence, missing: range, scores: Scores, first: int) -> None:
    """Record log probabilities of prompt tokens; `first` is their first row of `prompt_logits`."""
    assert scores.prompt_logits is not None
    assert sequence.prompt_logprobs is not None
    tokens = sequence.token_ids[missing.start + 1 : missing.stop + 1].tolist()
    sequence.prompt_logprobs.add(scores.prompt_logits[first : first + len(missing)], tokens)


def _dead_end(sequence: Sequence, nodes: list[int], sound: Ids[bool] | None) -> tuple[int, int, str] | None:
    """Return the first place on an accepted path after which no token could be chosen, its row of the draft, and the reason."""
    by_rules = {} if sequence.rules is None else sequence.rules.dead_rows
    if not by_rules and (sound is None or all(sound)):
        return None
    for place, node in enumerate((-1, *nodes)):
        row = node + 1
        reason = by_rules.get(row, NOT_NUMBERS if sound is not None and not sound[row] else None)
        if reason is not None:
            return place, row, reason
    return None


def _log_cause(sequence: Sequence, row: int) -> None:
    cause = None if sequence.rules is None else sequence.rules.causes.get(row)
    if cause is not None:
        logger.error(
            "request %s ends because its logits_processors raised", sequence.request_id, exc_info=cause
        )
