"""Greedy identity with `transformers`: all tokens, not a share.

A divergence counts as a tie only where a float64 rerun of the model shows that the two best ids are closer than
`TIE_GAP` at that position; ties are listed, and none is expected.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

TIE_GAP = 1e-5


@dataclass(frozen=True)
class Divergence:
    """The first token of one sample that is not the reference's."""

    prompt: int
    position: int
    """Index among the output tokens."""
    expected: int | None
    got: int | None
    gap: float
    """How far apart the two best logits are in float64."""

    @property
    def is_tie(self) -> bool:
        """Whether both tokens may be called best."""
        return self.gap < TIE_GAP


@dataclass
class Comparison:
    """What a run gave beside the reference."""

    num_prompts: int = 0
    num_tokens: int = 0
    divergences: list[Divergence] = field(default_factory=list)

    @property
    def ties(self) -> list[Divergence]:
        """Divergences that are ties in float64."""
        return [d for d in self.divergences if d.is_tie]

    @property
    def errors(self) -> list[Divergence]:
        """Divergences that are not."""
        return [d for d in self.divergences if not d.is_tie]


@torch.inference_mode()
def reference(model: PreTrainedModel, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Return what `generate` of `transformers` gives for one prompt, end of text disabled."""
    ids = torch.tensor([list(prompt)])
    out: torch.Tensor = model.generate(  # type: ignore[operator]  # a method, whatever the stubs say
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
    )
    tokens: list[int] = out[0, ids.shape[1] :].tolist()
    assert len(tokens) == max_tokens
    return tokens


def references(model: PreTrainedModel, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Return `reference` for several prompts."""
    return [reference(model, prompt, max_tokens) for prompt in prompts]


@torch.inference_mode()
def top_gap(model: PreTrainedModel, token_ids: Sequence[int]) -> float:
    """Return how far apart the two best next ids are, computed in float64."""
    wide = copy.deepcopy(model).double()
    logits = wide(torch.tensor([list(token_ids)]), use_cache=False).logits[0, -1]
    best = logits.topk(2).values
    return float(best[0] - best[1])


def compare(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    expected: Sequence[Sequence[int]],
    got: Sequence[Sequence[int]],
) -> Comparison:
    """Compare outputs with the reference; `model` is the reference's and is used for reruns in float64 only."""
    assert len(prompts) == len(expected) == len(got)
    result = Comparison(num_prompts=len(prompts), num_tokens=sum(map(len, expected)))
    for index, (prompt, want, have) in enumerate(zip(prompts, expected, got, strict=True)):
        if list(want) == list(have):
            continue
        length = min(len(want), len(have))
        at = next((i for i in range(length) if want[i] != have[i]), length)
        gap = top_gap(model, [*prompt, *want[:at]]) if at < length else float("inf")
        result.divergences.append(
            Divergence(
                prompt=index,
                position=at,
                expected=want[at] if at < len(want) else None,
                got=have[at] if at < len(have) else None,
                gap=gap,
            )
        )
    return result


def assert_identical(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    expected: Sequence[Sequence[int]],
    got: Sequence[Sequence[int]],
) -> None:
    """Fail on any divergence, listing ties apart from errors: neither is expected."""
    result = compare(model, prompts, expected, got)
    assert not result.divergences, f"errors: {result.errors}; ties: {result.ties}"
