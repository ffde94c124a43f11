"""What a visit measures: on an 8B model, and small, as a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass

from device.shape import LLAMA_8B, TINY, Shape


@dataclass(frozen=True)
class Plan:
    """Sizes of a visit.

    Args:
        target: the model, made with random weights.
        dtype: of its weights.
        head_vocab_size: ids that the head drafts.
        batch_sizes: requests at a time.
        short: tokens of a prompt in most parts.
        copied: the same where the answer is found in the prompt: more than steps with drafts generate.
        plain: batch sizes by tokens of a prompt, for plain decoding.
        profiled: batch sizes and tokens of a prompt, for the profiler.
        num_steps: timed steps.
        rates: requests a second that arrive.
        arrival_s: seconds in which they arrive.
        arrival_tokens: tokens of a prompt that arrives, and tokens to generate.
    """

    target: Shape
    dtype: str
    head_vocab_size: int
    batch_sizes: tuple[int, ...]
    short: int
    copied: int
    plain: dict[int, tuple[int, ...]]
    profiled: tuple[tuple[int, int], ...]
    num_steps: int
    rates: tuple[float, ...]
    arrival_s: float
    arrival_tokens: tuple[int, int]

    @property
    def longest(self) -> int:
        """Room for the longest request: more than steps of any part can add."""
        return max(self.plain) + 16 * (2 * self.num_steps + 16)


FULL = Plan(
    LLAMA_8B, "bfloat16", 32000, (1, 8, 32, 64), 128, 512, {128: (1, 8, 32, 64), 512: (1, 8), 4096: (1, 8, 64), 32768: (1, 8)},
    ((1, 128), (64, 128), (8, 4096)), 48, (4.0, 16.0), 10.0, (512, 128),
)  # fmt: skip
QUICK = Plan(
    TINY, "float32", 256, (1, 2, 3), 12, 64, {12: (1, 2, 3), 64: (1, 2)}, ((1, 12), (2, 12), (2, 64)), 6, (20.0,), 0.3, (12, 6)
)  # fmt: skip
