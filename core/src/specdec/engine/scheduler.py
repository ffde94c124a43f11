"""Chooses what runs in a step: decode rows first, then prompts fill the token budget."""

from __future__ import annotations

from collections import Counter
from time import perf_counter

from specdec.config.notices import draft_ends
from specdec.engine.kv_manager import KVManager
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.step import Row, Step
from specdec.engine.waiting import WaitingQueue
from specdec.errors import ConfigError

_PROMPT_SHARE = 4
"""While a prompt runs, or waits and could be admitted, drafts leave it this part of the token budget: a quarter."""
_MOST_LISTED = 1024
"""Log probabilities of a prompt that are listed in one step, for each request: spelling them keeps all requests waiting."""

_PROMPT_ROWS = 128
"""Rows of prompts whose log probabilities are listed in one step, of all requests."""
_SPARE_NODES = 64
"""Drafted tokens in one step beyond what proposers may draft for all requests: forced and predicted ones."""


def most_logits_rows(max_num_seqs: int, num_nodes: int, max_num_batched_tokens: int) -> int:
    """Return the most rows of logits in one step, where a proposer drafts up to `num_nodes` tokens for a request."""
    return min(max_num_batched_tokens, max_num_seqs * (1 + num_nodes) + _SPARE_NODES + _PROMPT_ROWS)


class Scheduler:
    """Continuous batching: chunked prefill, preemption by recompute, admission in `WaitingQueue` order.

    Args:
        kv: places sequences in the cache.
        max_num_seqs: maximum number of running sequences; never more than `max_num_batched_tokens`.
        max_num_batched_tokens: maximum number of rows in one pass.
        speculation: limits drafts; None without.
        has_priorities: whether requests with a lower `priority` are admitted first and preempted last.
    """

    def __init__(
        self,
        kv: KVManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        speculation: Speculation | None = None,
        *,
        has_priorities: bool = False,
    ) -> None:
        self._kv = kv
        self._max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self._token_budget = max_num_batched_tokens
        self._speculation = speculation
        most = 0 if speculation is None else speculation.num_speculative_tokens
        self._most_nodes = self._max_num_seqs * most + _SPARE_NODES
        self.waiting = WaitingQueue(has_priorities=has_priorities)
        self.running: list[Sequence] = []
        self.closed: str | None = None
        """Why requests are refused; None while they are accepted."""
        self._without_room: Sequence | None = None
        """The next one, if the cache had no room for it in the last step."""

    @property
    def has_work(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self.running or self.waiting.num_samples)

    @property
    def kv_cache_usage(self) -> float:
        """Fraction of the KV cache that belongs to sequences, 0 to 1."""
        return 1.0 - self._kv.pool.num_free_slots / self._kv.pool.num_slots

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes; returns False, and does nothing, while sequences run.

        Args:
            reset_running_requests: whether to forget them also then; running sequences keep what they have.
        """
        if self.running and not reset_running_requests:
            return False
        self._kv.pool.forget_prefixes()
        return True

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Raises:
            ConfigError: if it could never fit into the cache, and while requests are refused.
        """
        if self.closed is not None:
            raise ConfigError(f"no request is accepted: {self.closed}")
        if sequence.num_tokens + 1 > self._kv.pool.num_slots:
            raise ConfigError(
                f"a prompt of {sequence.num_tokens} tokens does not fit into the KV cache of {self._kv.pool.num_slots}: raise "
                "kv_cache_memory_bytes or shorten the prompt"
            )
        self.waiting.append(sequence)

    def schedule(self) -> Step:
        """Return the next step, admitting and preempting as the cache allows."""
        step = Step([])
        speculation = self._speculation
        without_room, self._without_room = self._without_room, None
        has_waiting = self.waiting.num_samples > 0
        prefilling = {s for s in self.running if s.num_tokens - s.num_computed > 1}
        may_admit = has_waiting and len(self.running) < self._max_num_seqs and without_room is None
        for_prompts = self._token_budget // _PROMPT_SHARE if prefilling or may_admit else 0
        for sequence in self._displaced(without_room) if has_waiting else ():
            self._preempt(sequence, step)
        # How much may be drafted is decided for all rows at once, before the token budget and the cache have their say.
        rows = {s: Row(s, s.num_computed, s.num_tokens) for s in self.running}
        left = self._token_budget - len(rows)  # each has a row for its last token
        for row in filter(lambda row: row.sequence in prefilling, rows.values()):
            left -= row.num_tokens - row.start - 1
            if left < 0:
                row.cap = 0  # its chunk does not reach that
        if speculation is not None:
            step.rows = list(rows.values())
            returning = speculation.plan(step)
            if returning is not None and self._take_back(rows[returning], step):
                prefilling.add(returning)
        budget, num_running, num_displaced = self._token_budget, len(self.running), len(step.preempted)
        order = sorted(self.running, key=prefilling.__contains__)
        # Reserve one row for every decoding sequence: drafts of the first ones must not starve the others.
        num_owed = sum(sequence not in prefilling for sequence in order)
        num_nodes, num_listed = self._most_nodes, _PROMPT_ROWS
        for sequence in order:
            row = rows[sequence]
            if sequence not in prefilling:
                num_owed -= 1
            if sequence in step.preempted:
                continue
            chunk = min(row.num_tokens - row.start, budget)
            if sequence.prompt_logprobs is not None:
                chunk = _listed_chunk(sequence, chunk, num_listed)
            is_last = chunk > 0 and row.start + chunk == row.num_tokens
            nodes = row.cap if is_last and speculation is not None else 0
            if is_last and sequence.expected is not None:
                row.expected = _expected(sequence, nodes, num_running)
                nodes = len(row.expected) or nodes
            # A draft takes what the chunk, the rows owed to others and the share of prompts leave of the budget.
            nodes = max(0, min(nodes, num_nodes, budget - chunk - num_owed - for_prompts))
            depth = nodes and max(nodes, step.num_draft_slots)
            if chunk > 0 and not self._kv.reserve(sequence, row.start + chunk + depth, row.start):
                nodes = 0  # a draft preempts nobody
                if not self._make_room(row, chunk, step):
                    continue
            row.chunk, row.cap, row.is_sampled = chunk, nodes, is_last
            row.expected = row.expected[:nodes]
            if sequence.prompt_logprobs is not None:
                row.prompt_rows = sequence.missing_prompt_rows(chunk)
                num_listed -= len(row.prompt_rows)
            budget, num_nodes = budget - chunk - nodes, num_nodes - nodes
        # The last sequence may have preempted itself: it could not grow in place, and restarts in an empty cache.
        if self.waiting.num_samples and (len(step.preempted) == num_displaced or not self.running):
            self._admit(budget, rows, num_listed)
        step.rows = [rows[sequence] for sequence in self.running]
        step.sampled = [row for row in step.rows if row.is_sampled]
        return step

    def runs_on(self) -> bool:
        """Return whether the running samples run next, and no others."""
        is_full = len(self.running) >= self._max_num_seqs
        return not self.waiting.num_samples or (is_full and not self._displaced(None))

    def reserve_next(self, step: Step) -> bool:
        """Reserve the rows of a step that runs the next token of the running samples, and drafts; False if there is no room, or
        others may run instead."""
        if not self.runs_on():
            return False
        if sum(1 + row.num_nodes for row in step.rows) > self._token_budget:
            return False
        return all(
            self._kv.reserve(row.sequence, row.num_tokens + row.slack + row.num_nodes, row.start + row.slack)
            for row in step.rows
        )

    def remove(self, sequences: list[Sequence]) -> None:
        """Remove finished or aborted sequences and free their cache."""
        for sequence in sequences:
            if sequence in self.running:
                self.running.remove(sequence)
            else:
                self.waiting.remove(sequence)
            self._kv.release(sequence)

    def _take_back(self, row: Row, step: Step) -> bool:
        """Let a sample that the proposer left out come back, if there is room; returns whether it computes rows again."""
        sequence, speculation = row.sequence, self._speculation
        if speculation is None or not self._kv.has_room_to_rerun(sequence):
            return False
        speculation.take_back(sequence)
        if not self._kv.rerun(sequence):
            self._preempt(sequence, step)
            return True
        row.start = sequence.num_computed
        if row.start < row.num_tokens - 1:
            row.cap = 0
        return True

    def _make_room(self, row: Row, chunk: int, step: Step) -> bool:
        """Reserve cache rows for the chunk of a row, preempting others if necessary; False if it was preempted itself."""
        while not self._kv.reserve(row.sequence, row.start + chunk, row.start):
            victim = self.running[-1]
            if self.waiting.has_priorities:
                victim = max(reversed(self.running), key=lambda running: running.priority)
            self._preempt(victim, step)
            if victim is row.sequence:
                return False
        return True

    def _preempt(self, victim: Sequence, step: Step) -> None:
        self.running.remove(victim)
        self._kv.release(victim)
        self.waiting.put_back(victim)
        step.preempted.append(victim)

    def _displaced(self, without_room: Sequence | None) -> list[Sequence]:
        """Return a sample of a client, or request, with several that makes way for a blocked one of one with none."""
        blocked = self.waiting.next(self.running)
        if len(self.running) < self._max_num_seqs and blocked is not without_room:
            return []
        by_client = Counter(sequence.client for sequence in self.running)
        by_request = Counter(sequence.parent_id for sequence in self.running)

        def num_running(sequence: Sequence) -> int:
            is_own = sequence.client == blocked.client
            return by_request[sequence.parent_id] if is_own else by_client[sequence.client]

        if by_request[blocked.parent_id] or self._is_put_off(blocked):
            return []
        others = [
            sequence
            for sequence in reversed(self.running)
            if self.waiting.may_replace(blocked, sequence)
            and num_running(sequence) > 1
            and (sequence.client == blocked.client or not by_client[blocked.client])
        ]
        return [max(others, key=num_running)] if others else []

    def _admit(self, budget: int, rows: dict[Sequence, Row], num_listed: int) -> None:
        """Admit waiting samples; those whose prefix is being computed wait for it, and others go before them."""
        put_off, most = list[Sequence](), self._max_num_seqs
        while self.waiting.num_samples and budget > 0 and len(self.running) + len(put_off) < most:
            sequence = self.waiting.next(self.running)
            if self._is_put_off(sequence) or (sequence.prompt_logprobs is not None and num_listed <= 0):
                self.waiting.remove(sequence)
                put_off.append(sequence)
                continue
            if put_off and sum(s.num_tokens for s in [*put_off, sequence]) > self._kv.pool.num_free_slots:
                break  # it would take the room of one before it
            if not self._kv.admit(sequence, min(sequence.num_tokens, self._token_budget)):
                self._without_room = sequence
                break
            self.waiting.remove(sequence)
            self.running.append(sequence)
            if sequence.admission_time is None:
                sequence.admission_time = perf_counter()
            chunk = _listed_chunk(
                sequence, min(sequence.num_tokens - sequence.num_computed, budget), num_listed
            )
            is_last = sequence.num_computed + chunk == sequence.num_tokens
            row = Row(sequence, sequence.num_computed, sequence.num_tokens, 0, chunk, is_last)
            row.prompt_rows = sequence.missing_prompt_rows(chunk)
            num_listed -= len(row.prompt_rows)
            rows[sequence] = row
            budget -= chunk
        for sequence in reversed(put_off):
            self.waiting.put_back(sequence)

    def _is_put_off(self, sequence: Sequence) -> bool:
        # Cached rows whose states a proposer reads, and does not hold yet, would be computed again.
        may_wait = self._speculation is None or not self._speculation.needs_hidden
        return may_wait and self._kv.has_pending_prefix(sequence, self.running)


def _expected(sequence: Sequence, most_proposed: int, num_running: int) -> list[int]:
    """Return the tokens that are drafted for a sequence without the proposer.

    None if the proposer, which may draft `most_proposed` nodes, is likely to get more accepted. Its mean begins with one
    draft that was accepted in full, so that it is tried.
    """
    expected, drafted = sequence.expected, list[int]()
    if expected is None or sequence.is_finished:
        return drafted
    try:
        room = sequence.max_num_tokens - sequence.num_tokens - 1
        drafted = expected.draft(sequence.num_output_tokens, room, num_running)
    except BaseException as error:
        draft_ends("finding forced or predicted tokens", error)
    num_drafts = 1 + sequence.drafts.num_drafts - expected.num_drafts
    num_accepted = most_proposed + sequence.drafts.num_accepted_tokens - expected.num_accepted
    return drafted if len(drafted) * num_drafts >= num_accepted or not most_proposed else []


def _listed_chunk(sequence: Sequence, chunk: int, most_rows: int) -> int:
    """Return how many of the next `chunk` tokens run in a step: few, if log probabilities of the prompt are listed.

    Those of at most `most_rows` positions are.
    """
    if sequence.prompt_logprobs is None:
        return chunk
    count, missing = sequence.params.prompt_logprobs, sequence.missing_prompt_rows(chunk)
    if count is None or not missing:
        return chunk
    num_rows = max(1, _MOST_LISTED // (count + 1)) if count >= 0 else 1
    return min(chunk, missing.start - sequence.num_computed + min(num_rows, most_rows))
