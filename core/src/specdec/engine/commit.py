"""Commits a verdict: tokens, counters, hidden states; an accepted tree path's cache rows move over rejected ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from operator import methodcaller
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from specdec.config.notices import draft_ends
from specdec.engine.containment import contain, fail
from specdec.engine.kv_manager import KVManager
from specdec.engine.scheduler import SchedulerOutput
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.speculation.top_k import top_k_of
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.expected_tokens import ExpectedTokens
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.score_batch import SlotCache
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import sent_together
from specdec.logits.logprobs import Listing, listings
from specdec.outputs import DraftStep
from specdec.samplers.paths import NOT_NUMBERS

logger = logging.getLogger("specdec")

Int64s = npt.NDArray[np.int64]
_SPOILT = "with drafted tokens in the pass the logits are not numbers"


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
        self._speculation = speculation

    def commit(
        self,
        scheduled: SchedulerOutput,
        draft: CheckedDraft,
        batch: VerifyBatch,
        scores: Scores,
        verdict: Verdict,
    ) -> Verdict:
        """Commit one step; sequences that end are marked finished.

        Returns:
            the part of the verdict that was kept: of a sample that ended, the tokens up to its end.
        """
        sound = verdict.is_sound
        decoding = [scheduled.sequences[index] for index in scheduled.decoding]
        kept_nodes, kept_tokens = [list[int]() for _ in decoding], [list[int]() for _ in decoding]
        delivery = None if self._speculation is None else self._speculation.delivery
        states = () if scores.hidden_states is None else (scores.hidden_states, *scores.aux_hidden_states)
        if delivery is not None and delivery.num_top_k:
            delivery.top_k = top_k_of(decoding, batch, scores, delivery.num_top_k, verdict)
        listed = verdict.listed
        if listed is None and any(sequence.logprobs is not None for sequence in decoding):
            listed = _listed(decoding, batch, scores, verdict)
        if any(nodes and nodes[-1] != len(nodes) - 1 for nodes in verdict.accepted_nodes):
            self._follow(scheduled, verdict)
        row_of_decoding, num_prompt_rows = {index: row for row, index in enumerate(scheduled.decoding)}, 0
        next_row = 0  # of the pass
        for index, (sequence, chunk) in enumerate(zip(scheduled.sequences, scheduled.chunks, strict=True)):
            if chunk == 0:
                continue
            if sequence.prompt_logprobs is not None:
                num_prompt_rows += _record_prompt(sequence, chunk, scores, num_prompt_rows)
            row = row_of_decoding.get(index)
            first, next_row = next_row, next_row + chunk + (0 if row is None else batch.num_nodes[row])
            nodes, emitted = list[int](), list[int]()
            if row is not None:
                if sound is not None and _spoils(batch, row, verdict, sound):
                    self._repeat_without_draft(sequence)
                    continue
                nodes, emitted = _judge(sequence, row, batch, scores, verdict, listed)
                kept_nodes[row], kept_tokens[row] = nodes, emitted
                num_drafted = batch.num_nodes[row]
                if num_drafted:  # else the proposer may still have to learn of an earlier draft
                    sequence.drafts.count(num_drafted, len(nodes))
                    if index not in scheduled.expected:
                        sequence.last_num_drafted, sequence.last_num_accepted = num_drafted, len(nodes)
                    elif sequence.expected is not None:
                        _tell(sequence, sequence.expected, methodcaller("observe", num_drafted, len(nodes)))
            if delivery is not None and delivery.needs_hidden:
                assert states, "a proposer that reads states is loaded with a scorer that gives them"
                # A stop may cut the draft after other rows, or no token could be chosen.
                num_choosers = chunk if row is None or emitted else chunk - 1
                rows = [first + chunk + node for node in nodes[: max(0, len(emitted) - 1)]]
                delivery.keep_hidden(sequence, states, [*range(first, first + num_choosers), *rows])
            sequence.num_computed += chunk + len(nodes)
            if row is not None and emitted:
                self._append(sequence, draft, row, nodes, emitted)
            self._kv.publish(sequence)
        return Verdict(kept_nodes, kept_tokens)

    def _follow(self, scheduled: SchedulerOutput, verdict: Verdict) -> None:
        """Move the cache rows of accepted paths of trees to where those of chains are; a device may know the paths already."""
        device, most = self._cache.device, max(verdict.num_accepted)
        if verdict.paths is not None and scheduled.along is not None:
            (slots,), paths = scheduled.along.on(device, "paths"), verdict.paths
        else:
            rows = zip(scheduled.decoding, verdict.accepted_nodes, strict=True)
            known = [path if scheduled.chunks[index] else () for index, path in rows]
            padded = np.array([[*path, *[-1] * (most - len(path))] for path in known])
            slots, paths = sent_together([first_node_slots(scheduled), padded], device)
        self._cache.gather(slots, paths[:, :most])

    def _repeat_without_draft(self, sequence: Sequence) -> None:
        """Commit nothing of a sequence, so that its rows run again in the next step, and draft nothing until it returns."""
        sequence.expected = None
        if self._speculation is not None:
            self._speculation.leave_out(sequence, _SPOILT)
        logger.warning(
            "request %s is left without drafts: %s; the step runs again without them, and output is not affected",
            sequence.request_id, _SPOILT,
        )  # fmt: skip

    def _append(
        self, sequence: Sequence, draft: CheckedDraft, row: int, nodes: list[int], emitted: list[int]
    ) -> None:
        """Append the emitted tokens, and record their draft step if requested."""
        sequence.append(emitted, len(nodes))
        if self._speculation is not None and not draft.rows[row]:
            self._speculation.note_undrafted(sequence, len(emitted))
        if sequence.expected is not None:
            _tell(
                sequence, sequence.expected, methodcaller("advance", sequence.output_token_ids, len(emitted))
            )
        if sequence.draft_steps is not None:
            token_ids = list(draft.rows[row])
            parents = (
                list(range(-1, len(token_ids) - 1)) if draft.parents is None else list(draft.parents[row])
            )
            proposer = draft.proposers[row] if token_ids and draft.proposers else None
            seconds = perf_counter() - sequence.arrival_time
            sequence.draft_steps.append(DraftStep(proposer, token_ids, parents, nodes, len(emitted), seconds))
        if sequence.rules is not None and sequence.rules.grammar is not None:
            try:
                sequence.rules.grammar.advance(emitted)
            except BaseException as error:
                contain(sequence, "advancing the grammar", error)


def first_node_slots(scheduled: SchedulerOutput) -> Int64s:
    """Return `[B]` the cache slot of the first node of each sequence that samples."""
    chosen = [(scheduled.sequences[index], scheduled.chunks[index]) for index in scheduled.decoding]
    return np.array([s.first_slot + s.num_computed + chunk for s, chunk in chosen], np.int64)


def _tell(sequence: Sequence, expected: ExpectedTokens, tell: Callable[[ExpectedTokens], None]) -> None:
    """Tell a sequence's expected tokens something; if that fails, nothing more is expected."""
    try:
        tell(expected)
    except BaseException as error:
        draft_ends("following forced or predicted tokens", error)
        sequence.expected = None


def _spoils(batch: VerifyBatch, row: int, verdict: Verdict, sound: Ids[bool]) -> bool:
    """Return whether a row with a draft cannot be judged, because logits on its path are not numbers.

    The draft may be the cause: a hidden key has weight 0 in attention, and 0 times NaN or infinity is NaN.
    """
    if not batch.num_nodes[row]:
        return False
    return not all(sound[batch.row_of(row, node)] for node in (-1, *verdict.accepted_nodes[row]))


def _judge(
    sequence: Sequence, row: int, batch: VerifyBatch, scores: Scores, verdict: Verdict,
    listed: Mapping[int, Ids[Listing]] | None,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return the kept nodes and tokens of a verdict, cut at the end of the text and where no token could be chosen.

    Where that is behind drafted tokens the next step tries again without them, and that one decides whether the sample ends.
    Nothing is kept if work for this sample fails here or failed earlier in the step.
    """
    nodes, token_ids = list(verdict.accepted_nodes[row]), list(verdict.token_ids[row])
    sound, dead = verdict.is_sound, None
    if sound is not None or sequence.rules is not None:
        first = batch.row_starts[row]
        dead = _dead_end(sequence, nodes, sound and sound[first : first + batch.num_nodes[row] + 1])
    if dead is not None:
        token_ids = token_ids[: dead[0]]
    if sequence.finish_reason is not None:
        return [], []
    try:
        emitted = sequence.stop_checker.accept(sequence, token_ids)
        nodes = nodes[: len(emitted)]
        if dead is not None and not sequence.is_finished:
            nodes = nodes[:-1]  # nothing follows the last one: it is the newest token, whose row runs again
            if not emitted:
                _, dead_row, reason = dead
                causes = {} if sequence.rules is None else sequence.rules.causes
                fail(sequence, reason, causes.get(dead_row))
        if sequence.logprobs is not None and emitted:
            if listed is not None and row in listed:
                sequence.logprobs.take(emitted, listed[row][: len(emitted)])
            else:
                rows = [batch.row_of(row, node) for node in (-1, *nodes)][: len(emitted)]
                raw = scores.raw_logits
                sequence.logprobs.add(raw[torch.tensor(rows, device=raw.device)], emitted)
    except BaseException as error:
        contain(sequence, "processing its tokens", error)
        return [], []
    return nodes, emitted


def _listed(
    decoding: list[Sequence], batch: VerifyBatch, scores: Scores, verdict: Verdict
) -> dict[int, list[Listing]]:
    """Return, by row of the draft, the log probabilities of a verdict's tokens, for requests that want few of each."""
    records = [sequence.logprobs for sequence in decoding]
    wanted = {row: r.num_few for row, r in enumerate(records) if r is not None and r.num_few >= 0}
    if not wanted:
        return {}
    rows = [batch.row_of(row, node) for row in wanted for node in (-1, *verdict.accepted_nodes[row])]
    tokens = [token_id for row in wanted for token_id in verdict.token_ids[row]]
    found = iter(listings(scores.raw_logits, rows, tokens, max(wanted.values())))
    return {row: [next(found) for _ in verdict.token_ids[row]] for row in wanted}


def _record_prompt(sequence: Sequence, chunk: int, scores: Scores, first: int) -> int:
    """Record log probabilities of the prompt's tokens in a chunk; `first` is their first row of `prompt_logits`.

    Returns:
        the number of rows.
    """
    missing = sequence.missing_prompt_rows(chunk)
    if missing:
        try:
            assert scores.prompt_logits is not None
            assert sequence.prompt_logprobs is not None
            tokens = sequence.token_ids[missing.start + 1 : missing.stop + 1].tolist()
            sequence.prompt_logprobs.add(scores.prompt_logits[first : first + len(missing)], tokens)
        except BaseException as error:
            contain(sequence, "recording log probabilities of the prompt", error)
    return len(missing)


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
