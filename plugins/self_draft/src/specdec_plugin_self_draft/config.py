"""The configuration keys of `self`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from specdec.interfaces import Resolve
from specdec_runtime.drafting import DraftingConfig
from specdec_runtime.interfaces import QuantizedLinear

_DEFAULT_TOKENS = 12


class SelfDraftConfig(DraftingConfig):
    """The form of the target that drafts, and how its tokens are chosen.

    `num_speculative_tokens` counts nodes: with `tree_top_k` above 1 the depth of a draft is divided by it.
    """

    weights: Literal["auto", "int8", "int4", "own"] = Field(
        default="auto",
        description="Weights of the draft: int8 with a scale for each output, or int4 with a scale for each group of inputs. "
        "auto: int4 where the target's weights had 4 bits before they were widened, as those of many GGUF files, else int8. "
        "own: the target's own, with skip_layers or attention_window.",
    )
    head_weights: Literal["auto", "int8", "int4", "own"] | None = Field(
        default=None, description="Weights of the output projection; by default as `weights`."
    )
    group_size: int = Field(
        default=32,
        ge=QuantizedLinear.BLOCK,
        description="Inputs that share a scale of int4: a power of two. Smaller groups are more exact and take more memory.",
    )

    draft_vocab_size: int | None = Field(
        default=None,
        ge=64,
        description="Ids that a draft names, the more frequent ones by their numbers. Chains without q on the CPU name those "
        "of their request's text besides, if the output projection is the embedding. By default all; on the CPU an eighth of "
        "the vocabulary, at least 32,768, where these are named, else a quarter, at least 49,152, if that is at most half of "
        "it.",
    )

    skip_layers: NonNegativeInt | tuple[NonNegativeInt, ...] = Field(
        default=0,
        description="Layers that the draft leaves out: their numbers from 0, or how many. Then it is those without which the "
        "target's distributions over a short text change least, each tried alone when the target is loaded.",
    )

    draft_margin: float = Field(
        default=0.1,
        ge=0.0,
        le=16.0,
        allow_inf_nan=False,
        description="A draft ends after the first token that is ahead of the next best one by less than this, in logits over "
        "the temperature with the noise of the draw: there draft and target often differ. 0 for never. On models with a "
        "compiled form on the CPU, for chains without q, grammars and draft_confidence_threshold.",
    )

    attention_window: int | None = Field(
        default=None,
        ge=64,
        description="Newest rows of the cache that a draft attends to, beside the first 4; all where left out. For long "
        "contexts, on models with a compiled form on the CPU.",
    )

    @classmethod
    def complete(cls, keys: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
        """Return the keys with the default number of tokens."""
        return {"num_speculative_tokens": _DEFAULT_TOKENS, **keys}

    @model_validator(mode="after")
    def _groups_are_used(self) -> Self:
        if "group_size" in self.model_fields_set and {self.weights, self.head_weights} <= {
            "int8",
            "own",
            None,
        }:
            raise ValueError(
                "group_size does nothing with int8, which has one scale for each output: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _is_cheaper(self) -> Self:
        is_whole = not self.skip_layers and self.attention_window is None
        if is_whole and {self.weights, self.head_weights or "own"} == {"own"}:
            raise ValueError(
                "weights 'own' without skip_layers or attention_window make drafts as dear as the target: set one of them"
            )
        return self

    @field_validator("group_size")
    @classmethod
    def _is_a_power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError(f"{value} is not a power of two: 32, 64 or 128")
        return value
