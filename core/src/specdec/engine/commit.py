"""Makes a verdict final: tokens, cache rows, counters, hidden states."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter

import torch

from specdec.engine.delivery import Delivery
from specdec.engine.kv_manager import KVManager
from specdec.engine.plan import Plan
from specdec.engine.sequence import Sequence
from specdec.engine.soundness import NOT_NUMBERS
from specdec.engine.stopping import StopWatch
from specdec.interfaces.draft import Draft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.sampler import Verdict
from specdec.interfaces.scorer import Scores
from specdec.outputs import DraftStep
from specdec.runner.kv_cache import KVCache

logger = logging.getLogger("specdec")


@dataclass(slots=True)
class Committed:
    """What one step did."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_accepted: list[int] = field(default_factory=list)
    """Drafted tokens that stood and were kept, for each sequence that sampled."""


class Committer:
    """Applies verdicts to sequences.

    Args:
        kv: publishes written blocks.
        cache: whose rows are compacted after a tree.
        delivery: keeps hidden states; None without a proposer.
        proposer_name: whose drafts they are, unless a draft says otherwise.
    """

    def __init__(
        self, kv: KVManager, cache: KVCache, delivery: Delivery | None, proposer_name: str | None = None
    ) -> None:
        self._kv = kv
        self._cache = cache
        self._delivery = delivery
        self._proposer_name = proposer_name

    def commit(
        self,
        plan: Plan,
        draft: Draft,
        scores: Scores,
        verdict: Verdict,
        watches: dict[Sequence, StopWatch],
        is_sound: torch.Tensor | None = None,
    ) -> Committed:
        """Commit one step; sequences that end are marked finished.

        `is_sound` `[R]` says which rows of the logits were numbers; None means all.
        """
        rows = draft.host_rows
        assert rows is not None
        done = Committed()
        sound: list[bool] | None = None if is_sound is None else is_sound.tolist()
        row_of_decoding = {index: row for row, index in enumerate(plan.decoding)}
        num_prompt_rows = 0
        for index, (sequence, chunk) in enumerate(zip(plan.sequences, plan.chunks, strict=True)):
            if chunk == 0:
                continue
            row = row_of_decoding.get(index)
            nodes: list[int] = []
            emitted: list[int] = []
            if row is not None:
                nodes = list(verdict.accepted_nodes[row])
                first = scores.row_of(row, -1)
                dead_rows = _dead_rows(sequence, sound and sound[first : first + len(rows[row]) + 1])
                emitted, dead_row = _choosable(dead_rows, nodes, list(verdict.token_ids[row]))
                emitted = watches[sequence].accept(emitted)
                if dead_row is not None and sequence.finish_reason is None:
                    _fail(sequence, dead_row, dead_rows[dead_row])
                nodes = nodes[: len(emitted)]
                self._count(done, sequence, len(rows[row]), len(nodes), len(emitted))
            num_prompt_rows = self._record(sequence, chunk, scores, row, nodes, emitted, num_prompt_rows)
            self._keep_rows(sequence, chunk, nodes)
            if self._delivery is not None and self._delivery.needs_hidden:
                # A row chose nothing that was kept where a stop cut the draft behind it, or where nothing could be chosen.
                num_choosers = chunk if emitted or row is None else chunk - 1
                chosen = [*range(num_choosers), *(chunk + node for node in nodes[: max(0, len(emitted) - 1)])]
                assert scores.hidden_states is not None
                passed = (scores.hidden_states, *scores.aux_hidden_states)
                self._delivery.keep_hidden(
                    sequence, passed, [scores.first_rows[index] + row for row in chosen]
                )
            sequence.num_computed += chunk + len(nodes)
            if emitted:
                sequence.append(emitted, len(nodes))
                if sequence.draft_steps is not None:
                    assert row is not None
                    seconds = perf_counter() - sequence.arrival_time
                    sequence.draft_steps.append(self._step_of(draft, row, nodes, len(emitted), seconds))
                if sequence.rules is not None and sequence.rules.grammar is not None:
                    sequence.rules.grammar.advance(emitted)
            self._kv.publish(sequence)
        return done

    def _step_of(
        self, draft: Draft, row: int, nodes: list[int], num_emitted: int, seconds: float
    ) -> DraftStep:
        """Return what a step drafted for one row of the draft, `nodes` being those that stood."""
        assert draft.host_rows is not None
        token_ids = list(draft.host_rows[row])
        parents = list(range(-1, len(token_ids) - 1))
        if draft.parents is not None:
            parents = draft.parents[row, : len(token_ids)].tolist()
        proposer = None
        if token_ids:
            proposer = self._proposer_name if draft.proposers is None else str(draft.proposers[row])
        return DraftStep(proposer, token_ids, parents, nodes, num_emitted, seconds)

    def _record(
        self,
        sequence: Sequence,
        chunk: int,
        scores: Scores,
        row: int | None,
        nodes: list[int],
        emitted: list[int],
        num_prompt_rows: int,
    ) -> int:
        """Record log probabilities where they are asked for; returns the rows of `prompt_logits` used up so far."""
        missing = sequence.missing_prompt_rows(chunk)
        if missing and sequence.prompt_logprobs is not None:
            assert scores.prompt_logits is not None
            rows = scores.prompt_logits[num_prompt_rows : num_prompt_rows + len(missing)]
            tokens = sequence.token_ids[missing.start + 1 : missing.stop + 1].tolist()
            sequence.prompt_logprobs.add(rows, tokens)
        if sequence.logprobs is not None and emitted:
            assert row is not None
            chosen_by = [scores.row_of(row, node) for node in (-1, *nodes)][: len(emitted)]
            index = torch.tensor(chosen_by, device=scores.raw_logits.device)
            sequence.logprobs.add(scores.raw_logits[index], emitted)
        return num_prompt_rows + len(missing)

    def _keep_rows(self, sequence: Sequence, chunk: int, nodes: list[int]) -> None:
        """Move the accepted rows of a tree together; those of a chain lie together already."""
        if nodes and nodes[-1] != len(nodes) - 1:
            first = sequence.first_slot + sequence.num_computed + chunk
            sources = torch.tensor(nodes, device=self._cache.device) + first
            self._cache.gather(sources, first)

    def _count(
        self, done: Committed, sequence: Sequence, num_drafted: int, num_accepted: int, num_emitted: int
    ) -> None:
        sequence.last_num_drafted, sequence.last_num_accepted = num_drafted, num_accepted
        done.num_emitted_tokens += num_emitted
        done.num_accepted.append(num_accepted)
        if num_drafted:
            sequence.count_draft(num_drafted, num_accepted)
            done.num_drafts += 1
            done.num_draft_tokens += num_drafted
            done.num_accepted_tokens += num_accepted


def _dead_rows(sequence: Sequence, sound: list[bool] | None) -> Mapping[int, str]:
    """Return why nothing could be chosen from rows of one draft."""
    by_rules = {} if sequence.rules is None else sequence.rules.dead_rows
    if sound is None or all(sound):
        return by_rules
    return {row: NOT_NUMBERS for row, is_sound in enumerate(sound) if not is_sound} | by_rules


def _choosable(
    dead_rows: Mapping[int, str], nodes: list[int], emitted: list[int]
) -> tuple[list[int], int | None]:
    """Return the tokens up to the first row from which nothing could be chosen, and which row that is."""
    if dead_rows:
        for place, node in enumerate((-1, *nodes)):
            if node + 1 in dead_rows:
                return emitted[:place], node + 1
    return emitted, None


def _fail(sequence: Sequence, row: int, reason: str) -> None:
    sequence.finish_reason, sequence.stop_reason = FinishReason.ERROR, reason
    cause = None if sequence.rules is None else sequence.rules.causes.get(row)
    if cause is not None:
        logger.error(
            "request %s ends because its logits_processors raised", sequence.request_id, exc_info=cause
        )
