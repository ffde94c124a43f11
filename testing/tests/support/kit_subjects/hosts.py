"""An engine that hosts proposers as it should, and mutants of it, each with the promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec import FinishReason, ProposeBatch, SamplingParams
from specdec_hosting import HostedProposer, HostTarget, open_proposer
from specdec_testing.support.generation import plain
from specdec_testing.support.target import check_target


class Right:
    """Knows what the target says, and verifies drafts against it."""

    reads_gguf = False

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        self.target = check_target(model)
        info = self.target.handle.info
        facts = HostTarget(
            vocab_size=info.vocab_size,
            hidden_size=info.hidden_size,
            num_layers=info.num_layers,
            max_model_len=max_model_len,
            max_num_seqs=4,
            has_hidden_states=True,
        )
        self.hosted: HostedProposer = open_proposer(speculative_config, facts, host="a toy")
        self.num_asked = 0

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        texts = plain(self.target, tuple(map(tuple, prompts)), 0.0)
        names = [f"{self.num_asked + row}" for row in range(len(prompts))]
        self.num_asked += len(names)
        left = {name: text[:count] for name, text, count in zip(names, texts, num_tokens, strict=True)}
        emitted: dict[str, list[int]] = {name: [] for name in names}
        drafts: dict[str, Sequence[int]] = {}
        for name, prompt in zip(names, prompts, strict=True):
            params = SamplingParams(temperature=0.0, max_tokens=len(left[name]))
            self.hosted.start(name, self.prompt([*prompt]), params)
        while running := [name for name in names if len(emitted[name]) < len(left[name])]:
            for name in running:
                prompt, at, draft = [*prompts[names.index(name)]], len(emitted[name]), [*drafts.get(name, ())]
                kept = 0
                while kept < len(draft) and left[name][at + kept : at + kept + 1] == [draft[kept]]:
                    kept += 1
                news = left[name][at : at + kept + 1]
                self.commit(name, news, len(draft), kept)
                emitted[name] += news
                if self.hosted.needs_hidden:
                    [states] = self.target.states(prompt + left[name], ())
                    first = len(prompt) + at - 1 if at else 0
                    self.hosted.keep_states(
                        name, first, (self.states(states[first : len(prompt) + at + kept]),)
                    )
            caps = [4 if len(emitted[name]) < len(left[name]) else 0 for name in running]
            drafts = dict(zip(running, self.hosted.propose(running, caps).rows, strict=True))
            ended = [name for name in running if len(emitted[name]) == len(left[name])]
            self.finish(ended)
        return [emitted[name] for name in names]

    def prompt(self, ids: list[int]) -> list[int]:
        return ids

    def commit(self, name: str, news: list[int], num_drafted: int, num_accepted: int) -> None:
        self.hosted.commit(name, news, num_drafted=num_drafted, num_accepted=num_accepted)

    def states(self, rows: Any) -> Any:
        return rows

    def finish(self, names: list[str]) -> None:
        self.hosted.finish(names, FinishReason.LENGTH)

    def counters(self) -> Mapping[str, Any]:
        return self.hosted.counters()

    def close(self) -> None:
        pass


class AnotherText(Right):
    """Emits a drafted token that the target does not choose."""

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        first, *others = super().generate(prompts, num_tokens)
        return [[*first[:-1], first[-1] + 1], *others]


class Believes(Right):
    """Loses its way after a mistake of the proposer."""

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        texts = super().generate(prompts, num_tokens)
        has_failed = self.counters()["specdec:proposer_errors"] > 0
        return [text[:-1] if has_failed else text for text in texts]


class Changes(Right):
    """Changes what the proposer is told."""

    def __init__(self, *arguments: Any, **keys: Any) -> None:
        super().__init__(*arguments, **keys)
        proposer = self.hosted.proposer
        asked: Callable[[ProposeBatch], Any] = proposer.propose
        proposer.propose = lambda batch: asked(self.changed(batch))  # type: ignore[method-assign]

    def changed(self, batch: ProposeBatch) -> ProposeBatch:
        raise NotImplementedError


class Skips(Changes):
    """Leaves a hole in the delivery."""

    def changed(self, batch: ProposeBatch) -> ProposeBatch:
        return replace(batch, starts=[start and start + 1 for start in batch.starts])


class AsksForMore(Changes):
    """Asks for longer drafts than k."""

    def changed(self, batch: ProposeBatch) -> ProposeBatch:
        return replace(batch, max_nodes=[most and most + 1 for most in batch.max_nodes])


class ShortPrompts(Right):
    """Forgets the first token of a prompt."""

    def prompt(self, ids: list[int]) -> list[int]:
        return ids[1:]


class NeverEnds(Right):
    """Does not say that requests end."""

    def finish(self, names: list[str]) -> None:
        pass


class AcceptsNothing(Right):
    """Says that no drafted token was accepted."""

    def commit(self, name: str, news: list[int], num_drafted: int, num_accepted: int) -> None:
        super().commit(name, news, num_drafted, 0)


class OtherStates(Right):
    """Gives the states of the position behind."""

    def states(self, rows: Any) -> Any:
        return rows.roll(1, 0) if len(rows) > 1 else rows


MUTANTS: dict[str, tuple[type[Right], str]] = {
    "another text": (AnotherText, "test_the_text_is_that_without_drafts"),
    "believes": (Believes, "test_a_hostile_proposer_costs_only_its_drafts"),
    "skips": (Skips, "test_tokens_arrive_in_order_and_without_holes"),
    "asks for more": (AsksForMore, "test_caps"),
    "short prompts": (ShortPrompts, "test_what_is_delivered_is_the_text"),
    "never ends": (NeverEnds, "test_every_request_ends_once"),
    "accepts nothing": (AcceptsNothing, "test_feedback_and_counters"),
    "other states": (OtherStates, "test_states_are_those_that_chose_the_tokens"),
}
