"""The workload that every contender of a run generates."""

from __future__ import annotations

from dataclasses import dataclass

from specdec import SamplingParams


@dataclass(frozen=True)
class Workload:
    """Prompts and generation settings, the same for every contender and round."""

    prompts: tuple[tuple[int, ...], ...]
    """Token ids."""
    max_tokens: int = 128
    batch_size: int = 1
    """Requests in flight; when one ends, the next one starts."""
    temperature: float = 0.8
    seed: int = 0
    """Prompt i is sampled with seed `seed + i`."""
    is_deterministic: bool = False
    """Whether logits are independent of the other requests in the batch (`LLM(deterministic=True)`)."""
    is_prefix_cached: bool = False
    """Whether engines use prefix caching, which is on by default outside of measurements."""
    num_speculative_tokens: int | None = None
    """A lower k than the configuration's, for every request."""
    is_recorded: bool = False
    """Whether outputs tell every step with its time; then no pass runs a second time to be timed bare."""

    def params(self, index: int) -> SamplingParams:
        """Return the sampling parameters of one prompt."""
        lower = self.num_speculative_tokens
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed + index,
            speculative=None if lower is None else {"num_speculative_tokens": lower},
            return_draft_steps=self.is_recorded,
        )
