"""The configuration keys of `suffix`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from specdec.interfaces import ProposerConfig, RequestArgs


class SuffixArgs(RequestArgs):
    """Limits of drafts for one request, in place of the configuration's."""

    max_spec_factor: float | None = Field(
        default=None, ge=0.0, allow_inf_nan=False, description="See `suffix_decoding_max_spec_factor`."
    )
    min_token_prob: float | None = Field(
        default=None, ge=0.0, le=1.0, description="See `suffix_decoding_min_token_prob`."
    )


class SuffixConfig(ProposerConfig):
    """Depth and contents of the trees, and limits of drafts. Names and defaults are vLLM's.

    `num_speculative_tokens` defaults to the depth of the trees.
    """

    suffix_decoding_max_tree_depth: int = Field(
        default=24,
        ge=1,
        description="The longest match and draft together, in tokens; a tree takes memory and time in proportion.",
    )
    suffix_decoding_max_cached_requests: int = Field(
        default=10000,
        ge=0,
        le=0x7FFFFFFF,
        description="How many responses of finished requests, each with the last tokens of its prompt, are drafted from, the "
        "oldest leaving first; 0: none, "
        "only the request's own text.",
    )
    suffix_decoding_max_spec_factor: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="The most tokens drafted per token matched.",
    )
    suffix_decoding_min_token_prob: float = Field(
        default=0.1,
        ge=0.0,
        le=1.0,
        description="A token is drafted only while its path is at least this likely, by counts in the tree.",
    )
    use_tree_spec: bool = Field(
        default=False,
        description="Draft the likeliest nodes as a tree instead of the likeliest path.",
    )
    suffix_decoding_cache_path: Path | None = Field(
        default=None,
        description="A file of responses: read at the start if it exists, written when the proposer ends. "
        "`specdec suffix warm` makes one. `zoo`: the responses that specdec-zoo has for the target, which are only read.",
    )
    suffix_decoding_time_budget_ms: float = Field(
        default=20.0,
        gt=0.0,
        allow_inf_nan=False,
        description="Processor time for the trees in one step; rows left over get no draft in it, and catch up later.",
    )

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> SuffixConfig:
        if self.revision is not None:
            raise ValueError(
                f"revision={self.revision!r}: suffix decoding has no draft model; remove revision"
            )
        if self.suffix_decoding_cache_path is not None and self.suffix_decoding_max_cached_requests == 0:
            raise ValueError(
                f"suffix_decoding_cache_path={str(self.suffix_decoding_cache_path)!r} with "
                "suffix_decoding_max_cached_requests=0: nothing would be kept; raise the one or remove the other"
            )
        return self
