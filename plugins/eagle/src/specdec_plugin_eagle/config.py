"""The configuration keys of `eagle` and `eagle3`."""

from __future__ import annotations

from pydantic import Field, model_validator

from specdec_drafting import HeadConfig


class EagleConfig(HeadConfig):
    """The EAGLE-1 or EAGLE-2 head and how it drafts; with `tree_top_k` above 1 in trees as in EAGLE-2 (arXiv 2406.16858)."""

    @model_validator(mode="after")
    def _needs_a_head(self) -> EagleConfig:
        if self.model is None:
            raise ValueError("model is missing: the directory or hub id of the head, or 'zoo'")
        return self


class Eagle3Config(EagleConfig):
    """The EAGLE-3 head, and how it drafts."""

    parallel_drafting: bool = Field(
        default=False,
        description="Guess all tokens in one pass from mask tokens, with heads trained for it (P-EAGLE).",
    )
