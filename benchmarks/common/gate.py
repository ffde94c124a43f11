"""The correctness gate: no ratio is shown between engines that do not generate the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

TIE = 1e-5
"""A divergence is a tie if the two best logits of a float64 rerun differ by less than this."""

GapOf = Callable[[Sequence[int]], float]
"""Gap between the two best logits after these tokens, in float64."""


@dataclass(frozen=True)
class Divergence:
    """The first token at which two outputs of one prompt differ."""

    prompt: int
    position: int
    """Index among the new tokens."""
    ours: int
    peer: int
    gap: float | None = None
    """Gap between the two best logits there, in float64; None if not computed."""

    @property
    def is_tie(self) -> bool:
        """Whether both tokens are correct."""
        return self.gap is not None and self.gap < TIE


@dataclass(frozen=True)
class Gate:
    """The result of comparing two sets of outputs."""

    is_required: bool
    num_prompts: int
    divergences: tuple[Divergence, ...]

    @property
    def is_passed(self) -> bool:
        """Whether a ratio may be shown."""
        return not self.is_required or all(item.is_tie for item in self.divergences)

    @property
    def num_identical(self) -> int:
        """Prompts with the same tokens on both sides."""
        return self.num_prompts - len(self.divergences)


def find_divergences(ours: list[list[int]], peer: list[list[int]]) -> list[Divergence]:
    """Return the first difference of every prompt that has one."""
    found = []
    for prompt, (left, right) in enumerate(zip(ours, peer, strict=True)):
        for position, (a, b) in enumerate(zip(left, right, strict=True)):
            if a != b:
                found.append(Divergence(prompt, position, a, b))
                break
    return found


def compare(
    prompts: list[list[int]],
    ours: list[list[int]],
    peer: list[list[int]],
    gap_of: GapOf | None,
) -> Gate:
    """Compare two sets of outputs.

    Args:
        prompts: the prompts given to both.
        ours: our new tokens for each prompt.
        peer: the peer's new tokens for each prompt.
        gap_of: decides whether a divergence is a tie; None if equality is not required (below float32).
    """
    found = find_divergences(ours, peer)
    if gap_of is not None:
        found = [
            replace(item, gap=gap_of(prompts[item.prompt] + ours[item.prompt][: item.position]))
            for item in found
        ]
    return Gate(gap_of is not None, len(prompts), tuple(found))
