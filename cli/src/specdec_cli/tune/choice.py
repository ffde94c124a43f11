"""What a search found, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.bench.candidates import LeftOut
from specdec_cli.bench.shown import is_shown, ratio_text
from specdec_cli.bench.speedup import Bounded
from specdec_cli.tune.candidate import Candidate
from specdec_cli.tune.halving import FEWEST_GROUPS, Halving
from specdec_cli.tune.stage import Stage


@dataclass(frozen=True)
class Tried:
    """A candidate and its speed in the last stage that it was in."""

    candidate: Candidate
    stage: int
    speedup: Bounded

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        value, low, high = self.speedup
        return {
            "name": self.candidate.name,
            "config": self.candidate.contender.config,
            "stage": self.stage,
            "speedup": value,
            "speedup_low": low,
            "speedup_high": high,
        }


@dataclass(frozen=True)
class Choice:
    """The fastest configuration, or none if plain decoding is."""

    stage: Stage
    """The last one with a measurement."""
    num_stages: int
    tried: tuple[Tried, ...]
    """By stage, the last one first, and speed-up."""
    left_out: tuple[LeftOut, ...]

    @property
    def fastest(self) -> Tried | None:
        """Return the fastest candidate, whether it is faster than plain decoding or not; None if there was none."""
        return self.tried[0] if self.tried else None

    @property
    def config(self) -> dict[str, Any] | None:
        """Return the `speculative_config` to use: that of the fastest candidate, if its lower bound is above plain decoding."""
        best = self.fastest
        if best is None or self.stage.num_groups < FEWEST_GROUPS or best.speedup[1] <= 1.0:
            return None
        return dict(best.candidate.contender.config)

    def reasons(self) -> list[str]:
        """Return sentences that say what was chosen and why."""
        best = self.fastest
        if best is None:
            return ["No speculation is best: no method could be used."]
        speed = f"{ratio_text(best.speedup)} as many tokens per second as plain decoding"
        name = best.candidate.name
        if not is_shown(*best.speedup[1:]):
            found = [
                f"Use no speculation: {name} was the fastest, "
                f"with {ratio_text(best.speedup)} beside plain decoding; more prompts or "
                "minutes would tell."
            ]
        elif self.config is not None:
            found = [f"Use {name}: it generates {speed}."]
        elif best.speedup[0] > 1.0:
            found = [
                f"Use no speculation: {name} generated {speed}, which may be chance; more prompts or minutes would tell."
            ]
        else:
            found = [f"No speculation is best: the fastest of all, {name}, generates {speed}."]
        rivals = [entry for entry in self.tried[1:] if entry.stage == best.stage]
        if rivals:
            found.append(
                "Next: " + ", ".join(f"{r.candidate.name} {ratio_text(r.speedup)}" for r in rivals) + "."
            )
        if any(rival.speedup[2] >= best.speedup[0] for rival in rivals) and self.config is not None:
            found.append("Configurations whose bounds overlap may be equally fast.")
        if self.stage.number < self.num_stages:
            found.append(
                f"The search ended in stage {self.stage.number} of {self.num_stages}: this is the best so far."
            )
        return found


def choice_of(halving: Halving, left_out: Sequence[LeftOut]) -> Choice | None:
    """Return the choice after a search, also one that was interrupted; None if nothing was measured."""
    last = halving.last
    if last is None:
        return None
    tried: dict[str, Tried] = {}
    for stage in reversed(halving.stages[: last.number]):
        for candidate in stage.ranked():
            tried.setdefault(candidate.name, Tried(candidate, stage.number, stage.speedup(candidate)))
    gone = {candidate.name for stage in halving.stages for candidate, _ in stage.left_out}
    found = [entry for entry in tried.values() if entry.candidate.name not in gone]
    return Choice(last, halving.num_stages, tuple(found), tuple(left_out))
