"""The compared speculation methods, with each engine's options for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.model import resolve_model, zoo_artefact
from common.options import Options
from common.protocol import Settings

METHODS = ("ngram", "draft_model", "suffix", "eagle3")


@dataclass(frozen=True)
class Speculation:
    """One method with one k, for all engines."""

    name: str
    ours: Settings
    """`speculative_config` of specdec."""
    transformers: Settings | None
    """Arguments of `generate`, or None if transformers lacks the method."""
    vllm: Settings
    """`speculative_config` of vLLM."""
    llama_cpp: Settings | None = None
    """Arguments of `LlamaPromptLookupDecoding`, or None for other methods."""


def speculations(options: Options, methods: Sequence[str], matches: Sequence[str]) -> Iterator[Speculation]:
    """Yield every method with every k; `ngram` also with every `match`."""
    for k in options.k:
        if "ngram" in methods:
            yield from (_ngram(options, k, match) for match in matches)
        if "draft_model" in methods:
            yield _draft_model(options, k)
        if "suffix" in methods:
            yield _suffix(k)
        if "eagle3" in methods:
            yield _eagle3(options, k)


def _ngram(options: Options, k: int, match: str) -> Speculation:
    """Prompt lookup; `match` is `recent` (specdec's default) or `first` (the peers' rule)."""
    lengths = {"prompt_lookup_min": options.lookup_min, "prompt_lookup_max": options.lookup_max}
    common = {"method": "ngram", "num_speculative_tokens": k, **lengths}
    return Speculation(
        f"ngram k={k} {match}",
        {**common, "match": match},
        {"prompt_lookup_num_tokens": k, "max_matching_ngram_size": options.lookup_max},
        common,
        {"num_pred_tokens": k, "max_ngram_size": options.lookup_max},
    )


def _draft_model(options: Options, k: int) -> Speculation:
    """The same draft and k for all engines; transformers' own rules for shortening a draft are off."""
    draft = options.draft or zoo_artefact("draft", resolve_model(options.model))
    common = {"method": "draft_model", "model": draft, "num_speculative_tokens": k}
    return Speculation(
        f"draft_model k={k}", common, {"assistant_model": draft, "num_assistant_tokens": k}, common
    )


def _suffix(k: int) -> Speculation:
    """Suffix trees with the default settings, which are the same in both engines."""
    common = {"method": "suffix", "num_speculative_tokens": k}
    return Speculation(f"suffix k={k}", common, None, common)


def _eagle3(options: Options, k: int) -> Speculation:
    """A chain draft from the same EAGLE-3 head in both engines."""
    head = options.head or zoo_artefact("eagle3", resolve_model(options.model))
    common = {"method": "eagle3", "model": head, "num_speculative_tokens": k}
    return Speculation(f"eagle3 k={k}", common, None, common)
