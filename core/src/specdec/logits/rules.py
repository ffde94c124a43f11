"""The rules by which a request's parameters change its logits, made once per sample."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from transformers import PreTrainedTokenizerBase

from specdec.errors import described, is_interrupt
from specdec.interfaces.grammar import GrammarState
from specdec.interfaces.target import TargetInfo
from specdec.logits.bans import AllowedIdsRule, MinTokensRule, bad_words_rule
from specdec.logits.bias import BiasRule
from specdec.logits.edits import Edits
from specdec.logits.penalties import PenaltyRule
from specdec.logits.processors import ProcessorRule
from specdec.logits.rows import RowBlock
from specdec.sampling_params import SamplingParams

logger = logging.getLogger("specdec")

_NOTHING_ALLOWED = "no token is allowed: the sampling parameters exclude each other"


class Rule(Protocol):
    """Changes the logits of one request's rows."""

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Add what changes in the rows of a block."""


class RequestRules:
    """The rules of one sample, in the order they apply.

    A dead row is one from which no token can be chosen: all ids are forbidden, the logits are NaN, or a rule raised.
    It keeps the target's logits and is recorded; the sample ends if a token has to be chosen from it.

    Args:
        rules: the rules, in order.
        grammar: the sample's grammar, or None; it applies last, so that nothing can allow what it forbids.
        processors: the caller's own functions, or None; they apply first.
    """

    def __init__(
        self, rules: Sequence[Rule], grammar: GrammarState | None, processors: ProcessorRule | None = None
    ) -> None:
        self._rules = rules
        self._processors = processors
        self.grammar = grammar
        self.dead_rows: dict[int, str] = {}
        """Reason for each dead row of the last block."""
        self.causes: dict[int, BaseException] = {}
        """Exceptions that the caller's own functions raised, by row of the last block."""

    @property
    def is_on_host(self) -> bool:
        """Whether the host has to see the logits: for the caller's functions, and for a grammar."""
        return self.grammar is not None or self._processors is not None

    def process(self, logits: torch.Tensor, block: RowBlock) -> None:
        """See `LogitsRules.process`."""
        self.dead_rows, self.causes = {}, {}
        with self._contained(block):
            if self._processors is not None:
                out, self.causes = self._processors.apply(logits, block)
                logits.copy_(out)

    def edits(self, block: RowBlock, vocab_size: int) -> Edits | None:
        """See `LogitsRules.edits`."""
        edits: Edits | None = None
        with self._contained(block):
            made = Edits(block.num_rows)
            for rule in self._rules if not self.dead_rows else ():
                rule.add_to(made, block)
            self.dead_rows |= dict.fromkeys(made.leave_dead_rows(vocab_size), _NOTHING_ALLOWED)
            edits = made
        return edits

    def mask(self, logits: torch.Tensor, block: RowBlock) -> None:
        """See `LogitsRules.mask`."""
        with self._contained(block):
            if self.grammar is not None:
                self.grammar.mask(logits, block.nodes, block.parents)

    @contextmanager
    def _contained(self, block: RowBlock) -> Iterator[None]:
        """Let an exception end only this sample: all its rows are dead."""
        try:
            yield
        except BaseException as error:  # it must not affect other requests
            if is_interrupt(error):
                raise
            reason = f"applying its sampling parameters failed: {described(error)}"
            self.dead_rows, self.causes = dict.fromkeys(range(block.num_rows), reason), {}
            logger.error("a request ends: %s", reason, exc_info=error)

    def settle(self, before: torch.Tensor, after: torch.Tensor, best: list[float]) -> None:
        """See `LogitsRules.settle`."""
        for row, value in enumerate(best):
            if row in self.causes:
                self.dead_rows[row] = described(self.causes[row])
            elif value == math.inf:  # a processor forces an id
                after[row] = torch.where(after[row] == torch.inf, 0.0, -torch.inf)
            elif not math.isfinite(value):
                self.dead_rows[row] = _NOTHING_ALLOWED if value == -math.inf else "the logits are not numbers"
            if row in self.dead_rows:
                after[row] = before[row]


def end_ids(params: SamplingParams, info: TargetInfo) -> set[int]:
    """Return the ids that end a sample, which `min_tokens` forbids."""
    ends = {*(() if params.is_endless else info.eos_token_ids), *(params.stop_token_ids or ())}
    return {token_id for token_id in ends if 0 <= token_id < info.vocab_size}


def make_rules(
    params: SamplingParams,
    info: TargetInfo,
    tokenizer: PreTrainedTokenizerBase | None,
    grammar: GrammarState | None,
) -> RequestRules | None:
    """Return the rules of a sample, or None if only temperature and truncation apply.

    The order is vLLM's: whitelist, bad words, minimum length, bias, penalties. The logits processors apply before these,
    the grammar after them.
    """
    rules: list[Rule] = []
    processors = ProcessorRule(params.logits_processors) if params.logits_processors else None
    if params.allowed_token_ids is not None:
        rules.append(AllowedIdsRule(params.allowed_token_ids))
    if params.bad_words:
        assert tokenizer is not None
        rules.append(bad_words_rule(tuple(params.bad_words), tokenizer))
    ends = end_ids(params, info)
    if params.min_tokens and ends:
        rules.append(MinTokensRule(params.min_tokens, sorted(ends)))
    if params.logit_bias:
        rules.append(BiasRule(params.logit_bias))
    if params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0:
        rules.append(PenaltyRule(params))
    if not rules and grammar is None and processors is None:
        return None
    return RequestRules(rules, grammar, processors)
