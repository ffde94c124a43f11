"""specdec's side of a prompt-lookup comparison."""

from __future__ import annotations

from common.options import Options
from common.variant import Variant


def specdec_plain(dtype: str) -> Variant:
    """specdec without speculation."""
    return Variant.make("specdec", "none", dtype)


def specdec_ngram(options: Options, dtype: str, k: int, match: str) -> Variant:
    """specdec with `ngram`; `match` is `recent` (its default) or `first` (drafts as the peers do)."""
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_min": options.lookup_min,
        "prompt_lookup_max": options.lookup_max,
        "match": match,
    }
    return Variant.make("specdec", f"ngram k={k} {match}", dtype, {"speculative_config": speculation})
