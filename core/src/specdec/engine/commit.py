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

from specdec.adaptive.expected_tokens import ExpectedTokens
from specdec.config.notices import draft_ends
from specdec.engine.containment.sample import contain, fail
from specdec.engine.kv_manager import KVManager
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.step import Row, Step, chain
from specdec.interfaces.sampler import Verdict
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

    def commit(self, step: Step, verdict: Verdict) -> None:
        """Commit one step; its rows get what is kept. Of a sample that ends, now marked finished, that is up to its end."""
        scores = step.scores
        assert scores is not None
        if self._speculation is not None and self._speculation.num_top_k:
            self._speculation.take_top_k(step, verdict)
        listed = verdict.listed
        if listed is None and any(row.sequence.logprobs is not None for row in step.sampled):
            listed = _listed(step.sampled, scores, verdict)
        if not step.is_compacted and any(n and n[-1] != len(n) - 1 for n in verdict.accepted_nodes):
            self._gather(step, verdict)
        # Verdicts are of the sampled rows, in their order; rows that left the step have one that nobody takes.
        index = -1
        for row in step.rows:
            index += row.is_sampled
            if row.chunk:
                self._commit_row(step, row, index, verdict, listed)

    def _commit_row(
        self, step: Step, row: Row, index: int, verdict: Verdict, listed: Mapping[int, Ids[Listing]] | None
    ) -> None:
        """Commit one row; `index` is that of its verdict, if it is sampled."""
        sequence, scores = row.sequence, step.scores
        assert scores is not None
        if row.prompt_rows:
            _record_prompt(row, scores)
        if row.is_sampled:
            if verdict.is_valid is not None and _spoils(row, verdict.accepted_nodes[index], verdict.is_valid):
                self._repeat_without_draft(sequence)
                return
            nodes, emitted = _cut_at_end(row, index, verdict, scores, listed)
            row.accepted, row.emitted = nodes, emitted
            if row.nodes:  # else the proposer may still have to learn of an earlier draft
                sequence.drafts.count(len(row.nodes), len(nodes))
                if not row.expected:
                    sequence.last_num_drafted, sequence.last_num_accepted = len(row.nodes), len(nodes)
                    sequence.last_draft_at = sequence.num_tokens
                elif sequence.expected is not None:
                    _tell(sequence, sequence.expected, methodcaller("observe", len(row.nodes), len(nodes)))
        if self._speculation is not None and self._speculation.needs_hidden:
            # A stop may cut the draft after other rows, or no token could be chosen.
            num_choosers = row.chunk - (row.is_sampled and not row.emitted)
            first = row.first + row.chunk
            chosen = [first + node for node in row.accepted[: max(0, len(row.emitted) - 1)]]
            kept = [*range(row.first, row.first + num_choosers), *chosen]
            self._speculation.keep_states(step, row, kept)
        # Rows of accepted nodes are in the cache; the token after them is the first row of the next step.
        sequence.num_computed += row.chunk + len(row.accepted)
        if row.emitted:
            self._append(step, row)
        self._kv.publish(sequence)

    def _gather(self, step: Step, verdict: Verdict) -> None:
        """Move the cache rows of accepted paths of trees to where those of chains are; a device may know the paths already."""
        device, most = self._cache.device, max(verdict.num_accepted)
        if verdict.paths is not None and step.transfer is not None:
            (slots,), paths = step.transfer.on(device, "paths"), verdict.paths
        else:
            known = [
                path if row.chunk else ()
                for row, path in zip(step.sampled, verdict.accepted_nodes, strict=True)
            ]
            padded = np.array([[*path, *[-1] * (most - len(path))] for path in known])
            slots, paths = sent_together([first_node_slots(step), padded], device)
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

    def _append(self, step: Step, row: Row) -> None:
        """Append the emitted tokens, and record their draft step if requested."""
        sequence, emitted = row.sequence, list(row.emitted)
        sequence.append(emitted, len(row.accepted))
        if self._speculation is not None and not row.nodes:
            self._speculation.note_undrafted(step, sequence, len(emitted))
        if sequence.expected is not None:
            _tell(
                sequence, sequence.expected, methodcaller("advance", sequence.output_token_ids, len(emitted))
            )
        if sequence.draft_steps is not None:
            parents = [*(chain(row) if row.parents is None else row.parents)]
            proposer = row.proposer or None if row.nodes else None
            seconds = perf_counter() - sequence.arrival_time
            sequence.draft_steps.append(
                DraftStep(proposer, list(row.nodes), parents, list(row.accepted), len(emitted), seconds)
            )
        if sequence.rules is not None and sequence.rules.grammar is not None:
            try:
                sequence.rules.grammar.advance(emitted)
            except BaseException as error:
                contain(sequence, "advancing the grammar", error)


def first_node_slots(step: Step) -> Int64s:
    """Return `[B]` the cache slot of the first node of each sample that gets a token."""
    return np.array([row.node_slot for row in step.sampled], np.int64)


def _tell(sequence: Sequence, expected: ExpectedTokens, tell: Callable[[ExpectedTokens], None]) -> None:
    """Tell a sequence's expected tokens something; if that fails, nothing more is expected."""
    try:
        tell(expected)
    except BaseException as error:
        draft_ends("following forced or predicted tokens", error)
        sequence.expected = None


def _spoils(row: Row, accepted: Ids[int], valid: Ids[bool]) -> bool:
    """Return whether a row with a draft cannot be judged, because logits on its path are not numbers.

    The draft may be the cause: a hidden key has weight 0 in attention, and 0 times NaN or infinity is NaN.
    """
    return bool(row.nodes) and not all(valid[row.first_logits + 1 + node] for node in (-1, *accepted))


def _cut_at_end(
    row: Row, index: int, verdict: Verdict, scores: Scores, listed: Mapping[int, Ids[Listing]] | None
) -> tuple[list[int], list[int]]:
    """Return the kept nodes and tokens of a verdict, cut at the end of the text and where no token could be chosen.

    Where that is behind drafted tokens the next step tries again without them, and that one decides whether the sample ends.
    Nothing is kept if work for this sample fails here or failed earlier in the step.
    """
    sequence, valid, dead = row.sequence, verdict.is_valid, None
    nodes, token_ids = list(verdict.accepted_nodes[index]), list(verdict.token_ids[index])
    if valid is not None or sequence.rules is not None:
        first = row.first_logits
        dead = _dead_end(sequence, nodes, valid and valid[first : first + len(row.nodes) + 1])
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
            if listed is not None and index in listed:
                sequence.logprobs.take(emitted, listed[index][: len(emitted)])
            else:
                rows = [row.first_logits + 1 + node for node in (-1, *nodes)][: len(emitted)]
                raw = scores.raw_logits
                sequence.logprobs.add(raw[torch.tensor(rows, device=raw.device)], emitted)
    except BaseException as error:
        contain(sequence, "processing its tokens", error)
        return [], []
    return nodes, emitted


def _listed(sampled: Ids[Row], scores: Scores, verdict: Verdict) -> dict[int, list[Listing]]:
    """Return, by place in a verdict, the log probabilities of its tokens, for requests that want few of each."""
    records = [row.sequence.logprobs for row in sampled]
    wanted = {index: r.num_few for index, r in enumerate(records) if r is not None and r.num_few >= 0}
    if not wanted:
        return {}
    paths = verdict.accepted_nodes
    rows = [sampled[index].first_logits + 1 + node for index in wanted for node in (-1, *paths[index])]
    tokens = [token_id for index in wanted for token_id in verdict.token_ids[index]]
    found = iter(listings(scores.raw_logits, rows, tokens, max(wanted.values())))
    return {index: [next(found) for _ in verdict.token_ids[index]] for index in wanted}


def _record_prompt(row: Row, scores: Scores) -> None:
    """Record log probabilities of the prompt's tokens in a chunk."""
    sequence, missing, first = row.sequence, row.prompt_rows, row.first_prompt_logits
    try:
        assert scores.prompt_logits is not None
        assert sequence.prompt_logprobs is not None
        tokens = sequence.token_ids[missing.start + 1 : missing.stop + 1].tolist()
        sequence.prompt_logprobs.add(scores.prompt_logits[first : first + len(missing)], tokens)
    except BaseException as error:
        contain(sequence, "recording log probabilities of the prompt", error)


def _dead_end(sequence: Sequence, nodes: list[int], valid: Ids[bool] | None) -> tuple[int, int, str] | None:
    """Return the first place on an accepted path after which no token could be chosen, its row of the draft, and the reason."""
    by_rules = {} if sequence.rules is None else sequence.rules.dead_rows
    if not by_rules and (valid is None or all(valid)):
        return None
    for index, node in enumerate((-1, *nodes)):
        row = node + 1
        reason = by_rules.get(row, NOT_NUMBERS if valid is not None and not valid[row] else None)
        if reason is not None:
            return index, row, reason
    return None
