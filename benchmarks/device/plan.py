"""Plans of a run: for a GPU, for a rehearsal on the CPU, and for tests."""

from __future__ import annotations

from dataclasses import dataclass

from device.shape import LLAMA_1B, LLAMA_8B, TINY, TINY_DRAFT, Shape


@dataclass(frozen=True)
class EnginePlan:
    """Steps of the engine."""

    batch_sizes: tuple[int, ...]
    k: tuple[int, ...]
    share_right: float
    """Probability that a drafted token is accepted if all earlier ones are."""
    prompt_tokens: int
    num_steps: int
    """Uninstrumented steps; as many again with a device sync at every border, half of them with the pass run twice."""
    recorded_tokens: int
    """Recorded tokens per request that the proposer can draft from."""
    budget_s: float
    """After this time no further batch size or k is started."""


@dataclass(frozen=True)
class AssistedPlan:
    """Comparison with assisted generation."""

    k: int
    share_right: float
    """Of a draft created at run time."""
    num_prompts: int
    prompt_tokens: int
    max_tokens: int
    rounds: int


@dataclass(frozen=True)
class KernelPlan:
    """Every kernel alone."""

    is_small: bool
    num_calls: int
    budget_s: float


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    name: str
    device: str
    dtype: str
    target: Shape | None
    """Shape of a target created at run time; None for the zoo's target."""
    draft: Shape | None
    """Shape of a draft created at run time; None for the zoo's draft."""
    engine: EnginePlan
    assisted: AssistedPlan
    kernels: KernelPlan


PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            name="gpu",
            device="cuda",
            dtype="bfloat16",
            target=LLAMA_8B,
            draft=LLAMA_1B,
            engine=EnginePlan((1, 2, 4, 8, 16, 32, 64), (0, 1, 2, 4, 8, 16), 0.7, 64, 24, 192, 220.0),
            assisted=AssistedPlan(4, 0.8, 2, 64, 64, 6),
            kernels=KernelPlan(is_small=False, num_calls=30, budget_s=100.0),
        ),
        Plan(
            name="cpu",
            device="cpu",
            dtype="float32",
            target=None,
            draft=None,
            engine=EnginePlan((1, 2, 4), (0, 1, 2, 4), 0.7, 64, 40, 256, 120.0),
            assisted=AssistedPlan(4, 0.8, 2, 64, 32, 3),
            kernels=KernelPlan(is_small=True, num_calls=10, budget_s=30.0),
        ),
        Plan(
            name="tiny",
            device="cpu",
            dtype="float32",
            target=TINY,
            draft=TINY_DRAFT,
            engine=EnginePlan((1, 2), (0, 2), 0.7, 8, 4, 64, 600.0),
            assisted=AssistedPlan(2, 0.8, 1, 8, 8, 1),
            kernels=KernelPlan(is_small=True, num_calls=1, budget_s=600.0),
        ),
    )
}
"""Plans by their name on the command line."""
