"""`speculative_config`: the keys that every method shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from specdec.config_model import ConfigModel
from specdec.errors import ConfigError

PLACE = "speculative_config"


class SpeculativeConfig(ConfigModel):
    """The common keys of `speculative_config`; all others belong to the method or the sampler.

    Names, types and rules are vLLM's. A key left out is None until the configuration is resolved.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """

    _error_prefix = PLACE

    method: str | None = Field(
        default=None,
        min_length=1,
        description="How tokens are guessed; inferred from `model` where left out.",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Directory, hub id or GGUF file of the draft, `zoo`, or the path of a class.",
    )
    num_speculative_tokens: int | None = Field(
        default=None, gt=0, description="The most tokens drafted in one step for one request (k)."
    )
    draft_tensor_parallel_size: int | None = Field(
        default=None,
        ge=1,
        description="Ranks the draft is spread over: 1 or the target's. Default: the target's; heads are on one.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        description="The longest context the draft may use. Default: the smaller of draft and target.",
    )
    parallel_drafting: bool = Field(
        default=False,
        description="Draft all tokens in one pass with mask tokens, with drafts trained for it.",
    )
    rejection_sample_method: str = Field(
        default="strict", min_length=1, description="The sampler: how drafts are verified."
    )
    draft_sample_method: Literal["greedy", "probabilistic", "coupled"] | None = Field(
        default=None,
        description="How a model drafts: best token, drawn with q kept, or drawn with the noise of `strict`. Default: what the "
        "sampler accepts most, `coupled` for `strict` and `probabilistic` where q is used.",
    )
    quantization: str | None = Field(
        default=None, min_length=1, description="Quantisation of the draft's weights."
    )
    revision: str | None = Field(default=None, min_length=1, description="Revision of `model` on a hub.")
    disable_by_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Draft nothing while more requests than this run; the proposer is told later what was written.",
    )
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] | None = Field(
        default=None,
        description="Rows of [first batch size, last batch size, k]; other batch sizes keep the full k.",
    )
    adaptive: bool | None = Field(
        default=None,
        description="Shorten drafts, or leave them out for a while, where by measurement they do not pay; false: always k "
        "tokens. What samplers other than `strict` draw then depends on how fast the machine is; its distribution does not. "
        "Default: true with `strict`, false with others and in other engines.",
    )
    on_proposer_error: Literal["fallback", "raise"] = Field(
        default="fallback", description="After an error in a proposer go on without drafts, or raise it."
    )

    @field_validator("num_speculative_tokens_per_batch_size")
    @classmethod
    def _ranges_are_apart(cls, rows: tuple[tuple[int, int, int], ...] | None) -> object:
        last = 0
        for start, end, k in sorted(rows or ()):
            if not 1 <= start <= end:
                raise ValueError(
                    f"[{start}, {end}, {k}] is not a range of batch sizes: 1 <= start <= end is needed"
                )
            if start <= last:
                raise ValueError(f"[{start}, {end}, {k}] overlaps the range before it; ends are inclusive")
            if k < 0:
                raise ValueError(f"[{start}, {end}, {k}]: k must be at least 0")
            last = end
        return rows

    @model_validator(mode="after")
    def _keys_fit_together(self) -> SpeculativeConfig:
        if self.revision is not None and self.model is None:
            raise ValueError("'revision' is that of 'model', which is not given")
        k = self.num_speculative_tokens
        if k is not None:
            above = [row for row in self.num_speculative_tokens_per_batch_size or () if row[2] > k]
            if above:
                raise ValueError(
                    f"'num_speculative_tokens_per_batch_size': {list(above[0])} asks for more than "
                    f"num_speculative_tokens = {k}"
                )
        return self

    def cap(self, batch_size: int) -> int:
        """Return the most tokens to draft per request while `batch_size` requests run."""
        if self.num_speculative_tokens is None:
            raise ConfigError(f"{PLACE}: 'num_speculative_tokens' is not known yet")
        if self.disable_by_batch_size is not None and batch_size > self.disable_by_batch_size:
            return 0
        rows = self.num_speculative_tokens_per_batch_size or ()
        return next((k for start, end, k in rows if start <= batch_size <= end), self.num_speculative_tokens)


def split(mapping: Mapping[str, Any]) -> tuple[SpeculativeConfig, dict[str, Any]]:
    """Return the validated common keys, and all other keys unchanged; loads no plugin.

    Raises:
        ConfigError: naming the invalid key.
    """
    common = {key: value for key, value in mapping.items() if key in SpeculativeConfig.model_fields}
    rest = {key: value for key, value in mapping.items() if key not in common}
    return SpeculativeConfig(**common), rest
