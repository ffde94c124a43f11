"""What a draft allows: how many tokens, over how many ranks, with which vocabulary and context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specdec.config.checkpoint import Checkpoint, find_number
from specdec.config.inference import Inferred
from specdec.config.notices import notice
from specdec.config.speculative import PLACE, SpeculativeConfig
from specdec.config.target import TargetFacts
from specdec.errors import ConfigError
from specdec.registry.catalogue import KnownMethod

if TYPE_CHECKING:
    from specdec.interfaces import Proposer

N_PREDICT = ("n_predict", "num_lookahead_tokens")
"""Keys of a draft's `config.json` that say how many tokens it was trained to guess, whatever the method."""
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "text_config.max_position_embeddings",
)
VOCABULARY_KEYS = ("vocab_size", "text_config.vocab_size")


def choose_tokens(
    config: SpeculativeConfig,
    inferred: Inferred,
    proposer: type[Proposer],
    own: Mapping[str, Any],
    draft: Checkpoint | None,
    target: TargetFacts | None,
) -> int:
    """Return k: as given, or what the checkpoint was trained for, or the plugin's own default.

    Raises:
        ConfigError: if nothing tells it, or if it is no multiple of what the checkpoint was trained for.
    """
    known, given = inferred.known, config.num_speculative_tokens
    trained = _trained_tokens(known, draft, target, needed=given is None)
    if given is not None:
        if trained is not None and given > trained and given % trained != 0:
            raise ConfigError(
                f"{PLACE}: 'num_speculative_tokens' = {given} must be divisible by n_predict = {trained}, "
                f"the number of tokens that {inferred.model or 'the target'} predicts in one pass"
            )
        return given
    if inferred.num_speculative_tokens is not None:
        return inferred.num_speculative_tokens
    if trained is not None:
        return trained
    fields = proposer.Config.model_fields
    option = known.default_tokens_option if known is not None else None
    if option is not None and (option in own or option in fields):
        return int(own[option] if option in own else fields[option].default)
    if not fields["num_speculative_tokens"].is_required():
        return int(fields["num_speculative_tokens"].default)
    raise ConfigError(
        f"{PLACE}: 'num_speculative_tokens' is missing: method {inferred.method!r} has no default for it, "
        "and no n_predict in a draft's config.json says it"
    )


def _trained_tokens(
    known: KnownMethod | None, draft: Checkpoint | None, target: TargetFacts | None, *, needed: bool
) -> int | None:
    keys = (*N_PREDICT, *(known.n_predict if known is not None else ()))
    if draft is not None:
        return draft.number(*keys) if needed or draft.directory.is_dir() else None
    if known is not None and known.draft == "target" and target is not None:
        return find_number(target.hf_config, *keys)
    return None


def draft_ranks(config: SpeculativeConfig, known: KnownMethod | None, target: TargetFacts | None) -> int:
    """Return the number of ranks the draft is spread over.

    Raises:
        ConfigError: if it is neither 1 nor the target's.
    """
    given = config.draft_tensor_parallel_size
    ranks = 1 if target is None else target.tensor_parallel_size
    forced = known.forced.get("draft_tensor_parallel_size") if known is not None else None
    if forced is not None:
        if given not in (None, forced):
            notice(
                f"{PLACE}:draft_tensor_parallel_size",
                f"{PLACE}: 'draft_tensor_parallel_size' = {given} has no effect: this draft runs on "
                f"{forced} rank",
            )
        return int(forced)
    if given is None:
        return ranks
    if target is not None and given not in (1, ranks):
        raise ConfigError(
            f"{PLACE}: 'draft_tensor_parallel_size' = {given} must be 1 or the target's "
            f"tensor_parallel_size = {ranks}"
        )
    return given


def check_draft(
    config: SpeculativeConfig,
    common: Mapping[str, Any],
    known: KnownMethod | None,
    proposer: type[Proposer],
    own: Mapping[str, Any],
    draft: Checkpoint | None,
    target: TargetFacts | None,
) -> None:
    """Raise where keys ask of a draft what it cannot do, or where it does not fit the target.

    Raises:
        ConfigError: naming the key, both values and the remedy.
    """
    for key in ("quantization", "parallel_drafting"):
        if common.get(key) and not _redeclares(proposer, key):
            raise ConfigError(
                f"{PLACE}: method {proposer.name!r} does not support {key!r} = {common[key]!r}: leave it out"
            )
    limit = config.max_model_len
    if (
        limit is not None
        and target is not None
        and target.max_model_len is not None
        and limit > target.max_model_len
    ):
        raise ConfigError(f"{PLACE}: 'max_model_len' = {limit} is above the target's {target.max_model_len}")
    if known is None or known.draft != "model" or draft is None or draft.config is None:
        return
    context = draft.number(*CONTEXT_KEYS)
    if limit is not None and context is not None and limit > context:
        raise ConfigError(
            f"{PLACE}: 'max_model_len' = {limit} is above the {context} tokens {draft.model} was made for"
        )
    _check_vocabulary(known, own, draft, target)


def _redeclares(proposer: type[Proposer], key: str) -> bool:
    """Return whether the plugin declares a key of `ProposerConfig` anew, as one that it honours."""
    from specdec.interfaces import ProposerConfig

    classes = proposer.Config.__mro__
    return any(
        key in vars(cls).get("__annotations__", {}) for cls in classes[: classes.index(ProposerConfig)]
    )


def _check_vocabulary(
    known: KnownMethod, own: Mapping[str, Any], draft: Checkpoint, target: TargetFacts | None
) -> None:
    option = known.mixed_vocabulary_option
    size = draft.number(*VOCABULARY_KEYS)
    if target is None or target.vocab_size is None or size is None or size == target.vocab_size:
        return
    if option is None or not own.get(option):
        raise ConfigError(
            f"{PLACE}: 'model': {draft.model} has a vocabulary of {size} tokens, the target one of "
            f"{target.vocab_size}: take a draft with the target's tokenizer"
            + (f", or set {option!r}: true" if option else "")
        )
