"""Suffix trees over running requests and over the responses of finished ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specdec import SamplingParams
from specdec.interfaces import ProposeBatch
from specdec_plugin_suffix.budget import TimeBudget
from specdec_plugin_suffix.cache import SuffixDraft, make_cache
from specdec_plugin_suffix.config import SuffixArgs, SuffixConfig
from specdec_plugin_suffix.memory import PIECE, TOKENS_PER_STEP, ResponseMemory
from specdec_plugin_suffix.request import Request, Rules


@dataclass
class SuffixCounters:
    """Effects of the time budget."""

    num_steps_over_budget: int = 0
    num_rows_without_time: int = 0
    """Number of wanted drafts that were not made because time was up or the tree was incomplete."""


class SuffixTrees:
    """Looks up, for every running request, what followed earlier occurrences of the end of its text.

    Each request has a tree of its text. One global tree holds the responses of finished requests and the ends of
    their prompts. A running request is only in its own tree,
    because it may still be aborted; its response is inserted once it has finished.

    The time of a step grows with new and drafted tokens and with the depth of the trees, not with the context.

    Args:
        config: the configuration; the cache file is not used.
    """

    def __init__(self, config: SuffixConfig) -> None:
        most = config.suffix_decoding_max_cached_requests
        self.counters = SuffixCounters()
        self.depth = config.suffix_decoding_max_tree_depth
        """The longest match and draft together, in tokens."""
        self._cache = make_cache(self.depth)
        self.memory = ResponseMemory(self._cache, most)
        self._requests: dict[str, Request] = {}
        self._rules = Rules(
            config.suffix_decoding_max_spec_factor,
            config.suffix_decoding_min_token_prob,
            config.use_tree_spec,
        )
        self._budget = TimeBudget(config.suffix_decoding_time_budget_ms / 1e3)

    def __len__(self) -> int:
        return len(self._requests)

    def step(self, batch: ProposeBatch, max_nodes: Sequence[int]) -> list[SuffixDraft | None]:
        """Insert the new tokens of every row and look up drafts.

        Args:
            batch: the batch of the step.
            max_nodes: `[B]`; 0 for no draft.

        Returns:
            `[B]` drafts; None if none is wanted or time was up.

        Raises:
            ValueError: if a row starts after the tokens delivered before.
        """
        cache, requests, budget = self._cache, self._requests, self._budget
        budget.begin()
        token_ids: list[int] = batch.new_token_ids.tolist()
        drafts: list[SuffixDraft | None] = [None] * len(batch.request_ids)
        behind: list[int] = []
        first = 0
        rows = zip(batch.request_ids, batch.starts, batch.counts, max_nodes, strict=True)
        for row, (request_id, start, count, most) in enumerate(rows):
            news = token_ids[first : first + count]
            first += count
            request = requests.get(request_id)
            if request is None or start != request.num_tokens:
                request = self._open(batch, row, request)
            request.append(news)
            if request.waiting or count > PIECE or budget.is_over():
                request.waiting += news
                behind.append(row)
                continue
            if count:
                cache.append(request_id, news)
            if most:
                drafts[row] = cache.speculate(request_id, most, request.rules)
        if behind:
            self._catch_up(batch.request_ids, max_nodes, behind, drafts)
        if not self.memory.is_settled:
            self.memory.settle(TOKENS_PER_STEP)
        return drafts

    def close(self, request_ids: Iterable[str], *, is_lesson: bool) -> None:
        """Drop these requests, ignoring unknown ids; with `is_lesson` their responses are kept for later requests."""
        for request_id in request_ids:
            request = self._requests.pop(request_id, None)
            if request is not None:
                self._cache.stop_request(request_id)
                if is_lesson and (lesson := request.lesson) is not None:
                    self.memory.add(lesson)

    def _open(self, batch: ProposeBatch, row: int, known: Request | None) -> Request:
        """Create a request's state, or recreate it up to its current start."""
        request_id, start = batch.request_ids[row], batch.starts[row]
        num_delivered = 0 if known is None else known.num_tokens
        if start > num_delivered:
            raise ValueError(
                f"request {request_id!r}: new tokens start at position {start}, but only {num_delivered} "
                "tokens were delivered before"
            )
        text: list[int] = batch.token_ids(row)[:start].tolist()
        if known is not None:
            self.close([request_id], is_lesson=False)
        self._cache.start_request(request_id)
        request = self._requests[request_id] = Request(
            text, batch.num_prompt_tokens[row], self._rules_for(batch.sampling_params[row])
        )
        return request

    def _rules_for(self, params: SamplingParams) -> Rules:
        """Return the limits of a request's drafts."""
        args = (params.speculative or {}).get("args")
        if not isinstance(args, SuffixArgs):  # none, or those of another method
            return self._rules
        rules = self._rules
        return Rules(
            rules.max_spec_factor if args.max_spec_factor is None else args.max_spec_factor,
            rules.min_token_prob if args.min_token_prob is None else args.min_token_prob,
            rules.is_tree,
        )

    def _catch_up(
        self,
        request_ids: Sequence[str],
        max_nodes: Sequence[int],
        behind: Sequence[int],
        drafts: list[SuffixDraft | None],
    ) -> None:
        """Insert waiting tokens into the trees, at least one piece, and draft for the rows that are then complete."""
        is_over = False
        for row in behind:
            request_id = request_ids[row]
            if not is_over:
                is_over = self._enter(request_id)
            if not max_nodes[row]:
                continue
            if is_over:
                self.counters.num_rows_without_time += 1
                continue
            request = self._requests[request_id]
            drafts[row] = self._cache.speculate(request_id, max_nodes[row], request.rules)
        self.counters.num_steps_over_budget += is_over

    def _enter(self, request_id: str) -> bool:
        """Insert waiting tokens into a request's tree, at least one piece; return whether time is up."""
        waiting, done = self._requests[request_id].waiting, 0
        while done < len(waiting):
            self._cache.append(request_id, waiting[done : done + PIECE])
            done += PIECE
            if self._budget.is_over():
                break
        del waiting[:done]
        return self._budget.is_over()
