"""Report of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from specdec_cli.audit.chi_square import POWER
from specdec_cli.audit.divergence import Kind
from specdec_cli.audit.drafting import Drafting
from specdec_cli.audit.greedy import AGAIN, ALONE, BATCHED, TOGETHER, GreedyResult
from specdec_cli.audit.sampled import SampledResult


class Verdict(IntEnum):
    """Verdict of an audit; the value is the exit status."""

    LOSSLESS = 0
    NOT_LOSSLESS = 1
    COULD_NOT_TELL = 2


@dataclass(frozen=True)
class SideReport:
    """One side of the comparison, and what it drafted by temperature; None if unknown."""

    name: str
    url: str
    model: str
    fields: Mapping[str, Any]
    drafting_greedy: Drafting | None
    drafting_sampled: Drafting | None


@dataclass(frozen=True)
class Report:
    """A complete audit; `sampled` is None if no samples were requested."""

    command: str
    time: str
    version: str
    without: SideReport
    with_drafts: SideReport
    greedy: GreedyResult
    sampled: SampledResult | None
    is_drafting_assumed: bool
    """Whether servers that do not report drafts are assumed to draft."""

    @property
    def faults(self) -> list[str]:
        """Evidence that speculation changes the output, one sentence each."""
        found = []
        greedy, sampled = self.greedy, self.sampled
        if not greedy.num_wrong(AGAIN):
            if wrong := greedy.num_wrong(ALONE):
                found.append(
                    f"At temperature 0 speculation changes {_times(wrong, 'answer')} of {greedy.num_prompts} by tokens that "
                    "are no near-tie."
                )
            elif (wrong := greedy.num_wrong(TOGETHER)) and not greedy.num_wrong(BATCHED):
                found.append(
                    f"At temperature 0 and among other requests speculation changes {_times(wrong, 'answer')} of "
                    f"{greedy.num_prompts} by tokens that are no near-tie; alone it does not."
                )
        if sampled is not None and not sampled.is_equal:
            worst = min(sampled.positions, key=lambda position: position.p_value)
            found.append(
                f"At temperature {sampled.temperature:g} speculation changes the distribution: p = {sampled.p_value:.2g}, most "
                f"at position {worst.place + 1}, where the samples are {worst.variation:.2f} apart (mean total variation)."
            )
        return found

    @property
    def doubts(self) -> list[str]:
        """Reasons why the audit cannot decide, one sentence each."""
        found = [sentence for name in ("greedy", "sampled") if (sentence := self._doubt_about_drafts(name))]
        greedy = self.greedy
        if greedy.num_wrong(AGAIN):
            found.append(
                "Without speculation the same prompt asked twice has different answers: there is nothing to compare with."
            )
        elif greedy.num_wrong(BATCHED) and greedy.num_wrong(TOGETHER) and not greedy.num_wrong(ALONE):
            found.append(
                "Among other requests answers change by more than rounding even without speculation: with --concurrency 1 "
                "only speculation is looked at."
            )
        if greedy.num_unknown:
            found.append(
                f"{_times(greedy.num_unknown, 'divergence')} cannot be told from near-ties, since the server gives no log "
                "probabilities for them: serve the model with logprobs."
            )
        return found

    @property
    def verdict(self) -> Verdict:
        """The verdict; faults take precedence over doubts."""
        if self.faults:
            return Verdict.NOT_LOSSLESS
        return Verdict.COULD_NOT_TELL if self.doubts else Verdict.LOSSLESS

    @property
    def summary(self) -> list[str]:
        """The verdict in sentences."""
        if self.verdict is Verdict.NOT_LOSSLESS:
            return self.faults
        if self.verdict is Verdict.COULD_NOT_TELL:
            return self.doubts
        return [self._greedy_sentence(), *([] if self.sampled is None else [_sampled_sentence(self.sampled)])]

    def as_json(self) -> dict[str, Any]:
        """Return the whole report, including the verdict, as JSON-compatible data."""
        return {
            "verdict": self.verdict.name.lower(),
            "exit_status": int(self.verdict),
            "summary": self.summary,
            **asdict(self),
            "divergence_kinds": {
                comparison.name: {kind.value: comparison.count(kind, self.greedy.tolerance) for kind in Kind}
                for comparison in self.greedy.comparisons
            },
            **(
                {}
                if self.sampled is None
                else {"p_value": self.sampled.p_value, "detectable": self.sampled.detectable}
            ),
        }

    def _doubt_about_drafts(self, part: str) -> str | None:
        if getattr(self, part) is None:
            return None
        how = "temperature 0" if part == "greedy" else "a temperature above 0"
        here, there = (getattr(side, f"drafting_{part}") for side in (self.with_drafts, self.without))
        if there is not None and there.num_draft_tokens:
            return (
                f"At {how} {self.without.url} drafted {there.num_draft_tokens} tokens where it should not: give the address of "
                "a server without speculation as the second one, or --off with the fields that turn it off."
            )
        if here is not None and not here.num_draft_tokens:
            return (
                f"At {how} {self.with_drafts.url} drafted nothing: serve it with speculation, or give --prompts that it drafts "
                "for."
            )
        if here is None and not self.is_drafting_assumed:
            return (
                f"At {how} {self.with_drafts.url} does not tell whether it drafts, in /metrics under vLLM's names or in "
                "responses: if it does, say --assume-drafts."
            )
        return None

    def _greedy_sentence(self) -> str:
        greedy = self.greedy
        ties = sum(greedy.named(name).count(Kind.NEAR_TIE, greedy.tolerance) for name in (ALONE, TOGETHER))
        near = f", but for {_times(ties, 'near-tie')}" if ties else ""
        return (
            f"At temperature 0 the answers to {greedy.num_prompts} prompts ({greedy.num_tokens} tokens) are the same with "
            f"speculation as without, alone and among others{near}."
        )


def _sampled_sentence(sampled: SampledResult) -> str:
    return (
        f"At temperature {sampled.temperature:g} nothing speaks against equal distributions (p = {sampled.p_value:.2g}); a "
        f"mean total variation of {sampled.detectable:.2f} at any one position would have been found with probability "
        f"{POWER:g}."
    )


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
