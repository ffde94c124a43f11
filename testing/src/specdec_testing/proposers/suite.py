"""Shared parts of the proposer suite: settings, and helpers that make proposers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from specdec.config import ZOO
from specdec.interfaces import Capability, FinishReason, Proposer, TargetHandle
from specdec_testing.support.call_sequence import NUM_PROMPT_TOKENS, call_sequence, play
from specdec_testing.support.checked_proposer import CheckedProposer, checked_proposer
from specdec_testing.support.conformance import Conformance, once_per_suite
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.rows import Row
from specdec_testing.support.target import CheckTarget, Model, check_target
from specdec_testing.support.texts import TEXT_LEN, texts_for
from specdec_testing.support.tiny import DEFAULT_MODEL
from specdec_testing.support.verdicts import not_applicable


class ProposerSuite(Conformance):
    """Settings and helpers of `ProposerConformance`."""

    settings: ClassVar[frozenset[str]] = frozenset({"method", "config", "model", "prompts"})

    method: ClassVar[str | type[Proposer]]
    """The method: its name, its class, or a path such as `./file.py:Class`."""
    config: ClassVar[Mapping[str, Any]] = {}
    """The other keys of `speculative_config`."""
    model: ClassVar[Model] = DEFAULT_MODEL
    """The target: the one a head was made for, else `zoo`, or `tiny` (random weights), the default without the zoo."""
    prompts: ClassVar[Sequence[str | Sequence[int]]] = ()
    """Texts on which the method drafts, for a method that does not draft on the kit's texts."""

    @property
    def _target(self) -> CheckTarget:
        return check_target(self.model)

    @property
    @once_per_suite
    def _checked(self) -> CheckedProposer:
        return checked_proposer(self.method, self.config, self.model, self._target)

    @property
    def _k(self) -> int:
        return self._checked.num_speculative_tokens

    @property
    def _vocab_size(self) -> int:
        return self._target.handle.info.vocab_size

    @property
    @once_per_suite
    def _texts(self) -> list[list[int]]:
        return texts_for(self._target.loaded, self.prompts, is_zoo=self.model == ZOO)

    @property
    @once_per_suite
    def _made(self) -> Proposer:
        checked = self._checked
        return checked.proposer_class.fitting(checked.resolved.proposer_config, self._target.handle.info)

    @property
    def _capabilities(self) -> frozenset[Capability]:
        return self._made.capabilities

    def _require_repeatable(self) -> None:
        if self._made.is_timed:
            not_applicable("drafts depend on measured durations (is_timed)")

    def _feed(
        self, *, has_feedback: bool = False, handle: TargetHandle | None = None, **changes: Any
    ) -> Feed:
        """Return a feed for a new proposer, which has seen the texts in finished requests if it learns from those alone."""
        feed = Feed(
            self._checked.make(self._target, handle, **changes), self._target, has_feedback=has_feedback
        )
        if self._learns_from_finished_only:
            self._teach(feed)
        return feed

    @property
    @once_per_suite
    def _learns_from_finished_only(self) -> bool:
        """Whether drafts on the texts are made only after finished requests that had them."""
        try:
            return not self._is_drafting(self._untaught()) and self._is_drafting(
                self._teach(self._untaught())
            )
        except pytest.fail.Exception:  # each test says itself what is wrong
            return False

    def _untaught(self) -> Feed:
        """Return a feed for a new proposer that has not seen a request."""
        return Feed(self._checked.make(self._target), self._target)

    def _teach(self, feed: Feed) -> Feed:
        """Run and finish a request with each text."""
        names = [self._add(feed, index, f"earlier-{index}") for index in range(len(self._texts))]
        for count in (NUM_PROMPT_TOKENS, TEXT_LEN - NUM_PROMPT_TOKENS):
            feed.call(dict.fromkeys(names, Ask(count, 0)))
        feed.finish(names, FinishReason.STOP)
        return feed

    def _is_drafting(self, feed: Feed) -> bool:
        """Return whether anything is drafted on the texts."""
        names = [self._add(feed, index) for index in range(len(self._texts))]
        drafted = play(feed, dict.fromkeys(names, call_sequence(self._k)))
        return any(row is not None and row.tokens for rows in drafted.values() for row in rows)

    def _single(self, feed: Feed, text: Sequence[int], cap: int) -> Row:
        """Return the draft after a whole text for a new request, whose last token is delivered in a separate call."""
        before = [Ask(len(text) - 1, 0)] if len(text) > 1 else []
        return self._last(feed, text, [*before, Ask(1, cap)])

    def _last(self, feed: Feed, text: Sequence[int], asks: Sequence[Ask]) -> Row:
        """Return the last draft for a new request, which is then aborted."""
        name = self._new(feed, text)
        for ask in asks:
            row = feed.call({name: ask})[name]
        feed.finish([name], FinishReason.ABORT)
        return row

    def _new(self, feed: Feed, text: Sequence[int]) -> str:
        """Add a request under an id that the feed has not seen; return the id."""
        name = f"request-of-call-{len(feed.seconds)}"
        feed.add(name, text, NUM_PROMPT_TOKENS)
        return name

    def _alone(self, index: int) -> list[Row | None]:
        """Return the drafts for text `index` without other requests, in each call of its call sequence."""
        if index not in self._known_alone:
            feed = self._feed()
            name = self._add(feed, index)
            self._known_alone[index] = [feed.call({name: ask})[name] for ask in call_sequence(self._k)]
        return self._known_alone[index]

    @property
    @once_per_suite
    def _known_alone(self) -> dict[int, list[Row | None]]:
        return {}

    def _name(self, index: int) -> str:
        return f"request-{index}"

    def _add(self, feed: Feed, index: int, name: str | None = None) -> str:
        """Add the request of text `index` to a feed; return its name."""
        name = self._name(index) if name is None else name
        feed.add(name, self._texts[index], NUM_PROMPT_TOKENS, seed=100 + index)
        return name
