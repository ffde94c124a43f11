"""What is run: for a GPU, as a rehearsal on the host, and in tests."""

from __future__ import annotations

from dataclasses import dataclass

from device.shape import LLAMA_1B, LLAMA_8B, TINY, TINY_DRAFT, Shape


@dataclass(frozen=True)
class EnginePlan:
    """Steps of the engine."""

    batch_sizes: tuple[int, ...]
    k: tuple[int, ...]
    share_right: float
    """Probability that a drafted token is accepted if all before it are."""
    prompt_tokens: int
    num_steps: int
    """Timed as they come; as many once more with the device idle at every border, half of them with the pass run twice."""
    recorded_tokens: int
    """How much of every text the proposer knows."""
    budget_s: float
    """No further batch size or k is begun after this time."""


@dataclass(frozen=True)
class AssistedPlan:
    """Assisted generation, side by side."""

    k: int
    share_right: float
    """Of a draft that is made on the spot."""
    num_prompts: int
    prompt_tokens: int
    max_tokens: int
    rounds: int


@dataclass(frozen=True)
class KernelPlan:
    """Every kernel by itself."""

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
    """Made on the spot; None for the zoo's target."""
    draft: Shape | None
    """Likewise."""
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
"""By the name that the command line takes."""
