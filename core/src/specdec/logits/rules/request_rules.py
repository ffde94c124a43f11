"""The rules by which a request's parameters change its logits, made once per sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import torch

from specdec.config.notices import draft_ends
from specdec.errors import ConfigError, described, is_interrupt
from specdec.interfaces.grammar import GrammarState
from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.sent import Transfer
from specdec.logits.rules.bans import AllowedIdsRule, BadWordsRule, MinTokensRule, bad_words_rule
from specdec.logits.rules.bias import BiasRule
from specdec.logits.rules.budget import ThinkingBudgetRule
from specdec.logits.rules.edits import Edits, StepEdits
from specdec.logits.rules.penalties import PenaltyRule
from specdec.logits.rules.processors import ProcessorRule
from specdec.sampling_params import SamplingParams
from specdec.text.reasoning import Reasoning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Result = TypeVar("Result")
_NOTHING_ALLOWED = "no token is allowed: the sampling parameters exclude each other"


class Rule(Protocol):
    """Changes the logits of one request's rows."""

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Add what changes in the rows of a block."""


class RequestRules:
    """The rules of one sample, in the order they apply: what `LogitsRules` says, and the changes themselves.

    Args:
        rules: the rules, in order.
        grammar: the sample's grammar, or None.
        processors: the caller's own functions, or None; they apply first.
    """

    def __init__(
        self, rules: Sequence[Rule], grammar: GrammarState | None, processors: ProcessorRule | None = None
    ) -> None:
        self._rules = rules
        self._processors = processors
        self.grammar = grammar
        self.dead_rows: dict[int, str] = {}
        self.causes: dict[int, BaseException] = {}

    @classmethod
    def changes(
        cls,
        blocks: Sequence[tuple[slice, RowBlock]],
        vocab_size: int,
        device: torch.device,
        transfer: Transfer | None,
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what makes, once, the changes of all requests of a step that have rules, to logits `[R, V]` float32, kept.

        Whatever the number of requests, edits take a few operations and one transfer.

        Args:
            blocks: those of these requests, with their rows; their `rules` are of this class.
            vocab_size: V.
            device: of the logits.
            transfer: what is read on the device goes with the pass, in it; None sends it by itself.
        """
        ruled = [(cast("RequestRules", block.rules), block, rows) for rows, block in blocks]
        for rules, _, _ in ruled:
            rules.dead_rows, rules.causes = {}, {}
        if any(rules._processors is not None for rules, _, _ in ruled):
            return partial(cls._changed, ruled, None)  # they come first, and an error of theirs ends a sample
        return partial(cls._changed, ruled, cls._edits_of(ruled, vocab_size, device, transfer))

    @classmethod
    def _edits_of(
        cls, ruled: Ruled, vocab_size: int, device: torch.device, transfer: Transfer | None
    ) -> StepEdits:
        edits = [(rows.start, rules._edits(block, vocab_size)) for rules, block, rows in ruled]
        return StepEdits(
            [(first, each) for first, each in edits if each is not None], vocab_size, device, transfer
        )

    @classmethod
    def _changed(cls, ruled: Ruled, edits: StepEdits | None, logits: torch.Tensor) -> torch.Tensor:
        """Return the changed logits; without edits these are made when the caller's functions have run."""
        on_host = [(rules, block, rows) for rules, block, rows in ruled if rules._is_on_host]
        out = logits
        if on_host or edits is None or edits.is_in_place:
            out = logits.clone(memory_format=torch.contiguous_format)
        if edits is None:
            for rules, block, rows in ruled:
                rules._process(out[rows], block)
            edits = cls._edits_of(ruled, out.shape[1], out.device, None)
        out = edits.make(out)
        for rules, block, rows in on_host:
            rules._mask(out[rows], block)
        best = out.amax(-1).tolist() if on_host else []  # read once for all requests
        for rules, _, rows in on_host:
            rules._settle(logits[rows], out[rows], best[rows])
        return out

    @property
    def _is_on_host(self) -> bool:
        """Whether the host has to see the logits, and waits for the device: for the caller's functions, and for a grammar."""
        return self.grammar is not None or self._processors is not None

    @property
    def reads_drafts(self) -> bool:
        """Whether the host has to know the drafted ids, so that it waits for the device before the pass."""
        return self._is_on_host or any(
            isinstance(rule, BadWordsRule | ThinkingBudgetRule) for rule in self._rules
        )

    def _process(self, logits: torch.Tensor, block: RowBlock) -> None:
        """Begin with the rows `logits [n, V]` of a block: change them by the caller's functions."""
        processors = self._processors
        if processors is None:
            return

        def processed(block: RowBlock) -> None:
            out, errors = processors.apply(logits[: block.num_rows], block)
            logits[: block.num_rows].copy_(out)
            for row, error in errors.items():
                self._end(row, error, described(error))

        self._contained(processed, block)

    def _edits(self, block: RowBlock, vocab_size: int) -> Edits | None:
        """Return the changes to single logits; None if there are none."""

        def made(block: RowBlock) -> Edits:
            edits = Edits(block.num_rows)
            for rule in self._rules:
                rule.add_to(edits, block)
            for row in edits.drop_dead_rows(vocab_size):
                self._end(row, ConfigError(_NOTHING_ALLOWED), _NOTHING_ALLOWED)
            return edits

        return self._contained(made, block)

    def _mask(self, logits: torch.Tensor, block: RowBlock) -> None:
        """Then forbid in `logits` what a grammar forbids."""
        grammar = self.grammar
        if grammar is not None:
            self._contained(lambda b: grammar.mask(logits[: b.num_rows], b.nodes, b.parents), block)

    def _contained(self, work: Callable[[RowBlock], Result], block: RowBlock) -> Result | None:
        """Return the result of work on a block; None if it fails, and then its rows are dead.

        If it fails along the draft, it is tried without: only what it is for the committed tokens may end the sample.
        """
        ahead: BaseException | None = None
        tries = [block]
        if block.num_nodes:
            tries.append(replace(block, nodes=(), parents=None, device_nodes=None))
        for tried in tries:
            try:
                result = work(tried)
            except BaseException as error:  # it must not affect other requests
                if is_interrupt(error):
                    raise
                reason = f"applying its sampling parameters failed: {described(error)}"
                for row in range(1 if tried.num_nodes else 0, block.num_rows):
                    self._end(row, error, str(error) if isinstance(error, ConfigError) else reason)
                ahead = error
            else:
                if ahead is not None:
                    draft_ends("applying sampling parameters", ahead)
                return result
        return None

    def _end(self, row: int, cause: BaseException, reason: str) -> None:
        """Record that no token can be chosen from a row."""
        self.dead_rows[row], self.causes[row] = reason, cause

    def _settle(self, before: torch.Tensor, after: torch.Tensor, best: list[float]) -> None:
        """Give rows `after [n, V]` from which no token can be chosen, by their `best` logit `[n]`, the logits `before`."""
        for row, value in enumerate(best):
            if row in self.dead_rows:
                pass
            elif value == math.inf:  # a processor forces an id
                after[row] = torch.where(after[row] == torch.inf, 0.0, -torch.inf)
            elif value == -math.inf:
                self._end(row, ConfigError(_NOTHING_ALLOWED), _NOTHING_ALLOWED)
            elif not math.isfinite(value):
                self.dead_rows[row] = "the logits are not numbers"
            if row in self.dead_rows:
                after[row] = before[row]


Ruled = list[tuple[RequestRules, RowBlock, slice]]
"""Requests with rules, and their rows."""


def rules_of(
    params: SamplingParams,
    tokenizer: PreTrainedTokenizerBase | None,
    grammar: GrammarState | None,
    end_ids: Collection[int],
    reasoning: Reasoning | None = None,
) -> RequestRules | None:
    """Return the rules of a sample without tokens, None if only temperature and truncation apply.

    The order is vLLM's: whitelist, bad words, minimum length, bias, penalties; a budget of reasoning overrides these. The
    logits processors apply before these, the grammar after them. Called from several threads.

    Args:
        params: the request's parameters.
        tokenizer: the target's, if it has one.
        grammar: the sample's grammar, or None.
        end_ids: the tokens that may end the sample.
        reasoning: of the sample, if it has a budget.
    """
    rules: list[Rule] = []
    processors = ProcessorRule(params.logits_processors) if params.logits_processors else None
    if params.allowed_token_ids is not None:
        rules.append(AllowedIdsRule(params.allowed_token_ids))
    if params.bad_words:
        assert tokenizer is not None
        rules.append(bad_words_rule(tuple(params.bad_words), tokenizer))
    if params.min_tokens and end_ids:
        rules.append(MinTokensRule(params.min_tokens, sorted(end_ids)))
    if params.logit_bias:
        rules.append(BiasRule(params.logit_bias))
    if params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0:
        rules.append(PenaltyRule(params))
    if reasoning is not None:
        rules.append(ThinkingBudgetRule(reasoning))
    if not rules and grammar is None and processors is None:
        return None
    return RequestRules(rules, grammar, processors)
