"""The suite for engines that host proposers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch

from specdec import ConfigError, Proposer
from specdec_testing.hosts.guests import Hostile, Recorder, StateRecorder
from specdec_testing.hosts.host import Host, find_host, target_for
from specdec_testing.scorers.suite import TOLERANCE
from specdec_testing.support.conformance import Conformance, once_per_suite
from specdec_testing.support.generation import MAX_TOKENS, plain
from specdec_testing.support.target import MAX_LEN, check_target
from specdec_testing.support.texts import repetitive
from specdec_testing.support.tiny import DEFAULT_MODEL
from specdec_testing.support.verdicts import broken, not_applicable

K = 4
_NUM_TOKENS = (MAX_TOKENS, 17, 23, 9)
_LENGTHS = (20, 33, 7, 50)
_NUM_ROUNDS = 2
"""All prompts are asked twice, so that in the second round prefixes are cached."""


@dataclass(frozen=True)
class Visit:
    """What became of requests while a proposer ran in an engine."""

    prompts: list[list[int]]
    texts: list[list[int]]
    expected: list[list[int]]
    counters: Mapping[str, Any]
    calls: list[dict[str, Any]]
    """What a recorder noted."""
    states: list[tuple[str, torch.Tensor]]
    """Of each ended request, `[n, H]`."""

    def count(self, name: str) -> int:
        """Return a counter by the part of its name behind the colon, without `spec_decode_`."""
        found = (
            v for key, v in self.counters.items() if key.split(":")[-1].removeprefix("spec_decode_") == name
        )
        return int(next(found, 0))

    def check_texts(self) -> None:
        """Compare the texts with the target's own."""
        for number, (got, wanted) in enumerate(zip(self.texts, self.expected, strict=True)):
            if got != wanted:
                broken(f"text {number} is {got}, without drafts {wanted}")


class HostConformance(Conformance):
    """What an engine owes the proposers that it hosts, one test each, greedily in float32.

    A subclass sets `host`, the name of an installed adapter's engine or a class like `Host`, and `model`.
    """

    settings: ClassVar[frozenset[str]] = frozenset({"host", "model"})

    host: ClassVar[str | type[Host]]
    """The engine: its name, or the class that runs it."""
    model: ClassVar[str] = DEFAULT_MODEL
    """The target: `zoo`, a directory, a hub id, or a file that specdec and the engine load."""

    def test_the_text_is_that_without_drafts(self) -> None:
        """Texts are the target's own, in a batch whose requests end one by one, for cold prompts and for cached ones.

        To fix: verify each drafted token against what the target chooses there, and emit that where they differ.
        """
        self._recorded.check_texts()

    def test_tokens_arrive_in_order_and_without_holes(self) -> None:
        """Delivery begins at position 0 and goes on where it stopped, prompts and cached prefixes included.

        To fix: `HostedProposer.start` takes the whole prompt, and `commit` all tokens of each step, once.
        """
        held: dict[str, list[int]] = {}
        for call in self._recorded.calls:
            for name in call.get("finished", ()):
                held.pop(name, None)
            for name, start, tokens, num_tokens in _delivered(call):
                before = held.setdefault(name, [])
                if start > len(before):
                    broken(f"{name}: tokens from {start} on were delivered, {len(before)} had been")
                before[start:] = tokens
                if len(before) != num_tokens:
                    broken(f"{name}: {len(before)} tokens were delivered of {num_tokens} that are committed")

    def test_what_is_delivered_is_the_text(self) -> None:
        """The proposer was told each request's prompt and text, but for two steps at the most.

        To fix: commit what the engine emitted, the accepted nodes and the token behind them, in the same step or the next.
        """
        visit = self._recorded
        wanted = sorted(prompt + text for prompt, text in zip(visit.prompts, visit.expected, strict=True))
        for told, text in zip(sorted(_told(visit.calls)), wanted, strict=True):
            if told != text[: len(told)] or len(told) < len(text) - 2 * (K + 1):
                broken(f"the proposer was told {told}, the text is {text}")

    def test_every_request_ends_once(self) -> None:
        """`finish` names each request once, with the reason for which it ended, and nothing of it is delivered afterwards.

        To fix: call `HostedProposer.finish` when the engine ends a request, and only then.
        """
        visit = self._recorded
        ended: list[str] = []
        for call in visit.calls:
            ended += call.get("finished", ())
            if call.get("reason", "length") not in ("length", "stop"):
                broken(f"{call['finished']} ended for the reason {call['reason']!r}")
        if len(ended) != len(visit.prompts):
            broken(f"{len(visit.prompts)} requests ran, and {len(ended)} ended: {ended}")
        if visit.count("requests_held"):
            broken(f"{visit.count('requests_held')} requests are held after the last one ended")

    def test_caps(self) -> None:
        """No more is asked than k tokens, and nothing for a prompt that is not computed or behind the last token.

        To fix: give `HostedProposer.propose` a limit of 0 for requests that emitted nothing, and `start` their `max_tokens`.
        """
        for call in self._recorded.calls:
            for most, num_tokens in zip(call.get("max_nodes", ()), call.get("num_tokens", ()), strict=True):
                if not 0 <= most <= K or num_tokens + most >= MAX_LEN:
                    broken(
                        f"{most} tokens were asked for behind {num_tokens}, k is {K} and the context {MAX_LEN}"
                    )

    def test_feedback_and_counters(self) -> None:
        """Drafts are made and accepted, and what is told of the last one fits it.

        To fix: `commit` takes how many drafted tokens were verified, and how many of these were accepted.
        """
        visit = self._recorded
        for call in visit.calls:
            for drafted, accepted in zip(call.get("drafted", ()), call.get("accepted", ()), strict=True):
                if not 0 <= accepted <= drafted <= K:
                    broken(f"{accepted} of {drafted} drafted tokens were accepted, k is {K}")
        num_accepted, num_drafted = (visit.count(f"num_{what}_tokens") for what in ("accepted", "draft"))
        if not 0 < num_accepted <= num_drafted:
            broken(f"{num_accepted} of {num_drafted} drafted tokens were accepted")
        if visit.count("proposer_errors") or visit.count("adapter_failures"):
            broken(
                f"{visit.count('proposer_errors')} calls and {visit.count('adapter_failures')} steps failed"
            )

    def test_a_hostile_proposer_costs_only_its_drafts(self) -> None:
        """Eight mistakes of a proposer, one after the other, change no text and end no engine.

        To fix: ask for drafts through `HostedProposer.propose`, and hand the engine only what that returns.
        """
        visit = self._visited(Hostile)
        visit.check_texts()
        if not visit.count("proposer_errors"):
            broken("no mistake was counted")
        if visit.count("adapter_failures"):
            broken(f"the adapter failed in {visit.count('adapter_failures')} steps")

    def test_states_are_those_that_chose_the_tokens(self) -> None:
        """Hidden states that the engine offers are the target's, each at the position before its token.

        To fix: give `keep_states` the rows of the step, the final states behind the last norm, without those of rejected nodes.
        """
        try:
            visit, target = self._visited(StateRecorder), check_target(self.model)
        except ConfigError as error:
            not_applicable(f"the engine gives no hidden states: {error}")
        visit.check_texts()
        if len(visit.states) != len(visit.prompts):
            broken(f"states of {len(visit.states)} requests were delivered, {len(visit.prompts)} ran")
        for (name, states), text in zip(visit.states, _told(visit.calls), strict=True):
            [expected] = target.states_before(text[: len(states)], ())
            off = float((states - expected).abs().max() / expected.abs().max())
            if not off <= TOLERANCE:
                broken(f"{name}: states are {off:.2g} off those of the target")

    @property
    @once_per_suite
    def _recorded(self) -> Visit:
        return self._visited(Recorder)

    def _visited(self, guest: type[Proposer]) -> Visit:
        target = check_target(self.model)
        vocab_size = target.handle.info.vocab_size
        prompts = [repetitive(vocab_size, 60 + seed, length) for seed, length in enumerate(_LENGTHS)]
        texts = plain(target, tuple(map(tuple, prompts)), 0.0)
        expected = [text[:count] for text, count in zip(texts, _NUM_TOKENS, strict=True)]
        host = find_host(self.host) if isinstance(self.host, str) else self.host
        with TemporaryDirectory() as folder:
            config: dict[str, Any] = {"method": f"{guest.__module__}.{guest.__name__}"}
            config |= {"num_speculative_tokens": K, "adaptive": False}
            config |= {} if guest is Hostile else {"folder": folder}
            engine = host(
                target_for(host, self.model),
                config,
                caches_prefixes=guest is not StateRecorder,
                max_model_len=MAX_LEN,
            )
            try:
                got = [text for _ in range(_NUM_ROUNDS) for text in engine.generate(prompts, _NUM_TOKENS)]
                counters = dict(engine.counters())
            finally:
                engine.close()
            file = Path(folder) / "calls"
            lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            states = [torch.load(path) for path in sorted(Path(folder).glob("states*"))]
        calls = [json.loads(line) for line in lines]
        return Visit(prompts * _NUM_ROUNDS, got, expected * _NUM_ROUNDS, counters, calls, states)


def _delivered(call: Mapping[str, Any]) -> Iterator[tuple[str, int, list[int], int]]:
    """Yield of each request of a call the position of the first new token, the new tokens, and how many it has."""
    first = 0
    for row, name in enumerate(call.get("request_ids", ())):
        count = call["counts"][row]
        yield name, call["starts"][row], call["new"][first : first + count], call["num_tokens"][row]
        first += count


def _told(calls: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return what was delivered of each request, in the order in which they ended."""
    held, told = dict[str, list[int]](), list[list[int]]()
    for call in calls:
        for name, start, tokens, _ in _delivered(call):
            held.setdefault(name, [])[start:] = tokens
        told += (held.pop(name) for name in call.get("finished", ()) if name in held)
    return told
