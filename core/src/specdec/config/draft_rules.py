"""Limits of a draft: number of tokens, number of ranks, context length."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import get_annotations
from typing import TYPE_CHECKING, Any

from specdec.config.checkpoint import Checkpoint, find_number
from specdec.config.inference import Inferred
from specdec.config.notices import notice
from specdec.config.speculative import PLACE, SpeculativeConfig
from specdec.errors import ConfigError
from specdec.target_facts import TargetFacts

if TYPE_CHECKING:
    from specdec.interfaces import Proposer

N_PREDICT = ("n_predict", "num_lookahead_tokens")
"""Keys of a draft's `config.json`, for any method, that hold the number of tokens it was trained to predict."""

_ON_ONE_RANK = ("head", "target")
"""Drafts that are small compared with the target: rank 0 holds the whole draft."""


@dataclass(frozen=True)
class DraftFacts:
    """What is known about a draft when its keys are checked."""

    inferred: Inferred
    proposer: type[Proposer]
    own: Mapping[str, Any]
    """The plugin's own keys."""
    checkpoint: Checkpoint | None
    """None for a draft without weights of its own."""
    target: TargetFacts | None


def choose_tokens(config: SpeculativeConfig, facts: DraftFacts) -> int:
    """Return k: the given value, else the one the checkpoint was trained for, else the plugin's default.

    Raises:
        ConfigError: if none of these exists, or if k is above the number the checkpoint was trained for and no multiple of it.
    """
    inferred, given = facts.inferred, config.num_speculative_tokens
    trained = _trained_tokens(facts, is_needed=given is None)
    if given is not None:
        has_counted = inferred.known is not None and inferred.known.head_tensors is not None
        if trained is not None and given > trained and given % trained != 0 and not has_counted:
            raise ConfigError(
                f"{PLACE}: 'num_speculative_tokens' = {given} must be divisible by n_predict = {trained}, "
                f"the number of tokens that {inferred.model or 'the target'} predicts in one pass"
            )
        return _with_room(given, facts)
    trained_length = trained if inferred.num_speculative_tokens is None else inferred.num_speculative_tokens
    if trained_length is not None:
        return _with_room(trained_length, facts)
    fields = facts.proposer.Config.model_fields
    option = inferred.known.default_tokens_option if inferred.known is not None else None
    if option is not None and (option in facts.own or option in fields):
        value = facts.own[option] if option in facts.own else fields[option].default
        if isinstance(value, int) and value < 1:
            raise ConfigError(f"{PLACE}: {option!r} = {value}: input should be greater than 0")
        return int(value)
    if not fields["num_speculative_tokens"].is_required():
        return int(fields["num_speculative_tokens"].default)
    raise ConfigError(
        f"{PLACE}: 'num_speculative_tokens' is missing: method {inferred.method!r} has no default for it, "
        'and no n_predict in a draft\'s config.json says it; add it, such as "num_speculative_tokens": 5'
    )


def _with_room(tokens: int, facts: DraftFacts) -> int:
    longest = None if facts.target is None else facts.target.max_model_len
    if longest is not None and tokens >= longest:
        raise ConfigError(
            f"{PLACE}: 'num_speculative_tokens' = {tokens} is more than a context of max_model_len = {longest} has room "
            f"for: at most {longest - 1}"
        )
    return tokens


def _trained_tokens(facts: DraftFacts, *, is_needed: bool) -> int | None:
    known, draft = facts.inferred.known, facts.checkpoint
    keys = (*N_PREDICT, *(known.n_predict if known is not None else ()))
    if draft is not None:
        held = _num_heads(known.head_tensors, draft) if known is not None and known.head_tensors else 0
        if held or not (is_needed or draft.is_directory):
            return held or None
        kinds = known.n_predict_of if known is not None else {}
        return draft.number(*keys) or kinds.get(str((draft.config or {}).get("model_type")))
    if known is not None and known.draft == "target" and facts.target is not None:
        return find_number(facts.target.hf_config, *keys)
    return None


def _num_heads(pattern: str, draft: Checkpoint) -> int:
    """Return the number of heads in a draft's weights; its configuration may state fewer."""
    found = (re.fullmatch(pattern, name) for name in draft.tensor_files)
    # What is not numbered up to the number of tensors is not numbered in turn.
    numbers = (int(match[1]) + 1 for match in found if match and len(match[1]) < 10)
    return max((number for number in numbers if number <= len(draft.tensor_files)), default=0)


def choose_ranks(config: SpeculativeConfig, facts: DraftFacts) -> int:
    """Return the number of ranks the draft is sharded over.

    Raises:
        ConfigError: if it is neither 1 nor the target's `tensor_parallel_size`.
    """
    known, given = facts.inferred.known, config.draft_tensor_parallel_size
    forced = None
    if known is not None:
        is_head = known.draft in _ON_ONE_RANK
        forced = known.forced.get("draft_tensor_parallel_size", 1 if is_head else None)
    if forced is not None:
        if given not in (None, forced):
            notice(
                f"{PLACE}:draft_tensor_parallel_size",
                f"{PLACE}: 'draft_tensor_parallel_size' = {given} has no effect: this draft runs on "
                f"{forced} rank",
            )
        return int(forced)
    ranks = 1 if facts.target is None else facts.target.tensor_parallel_size
    if given is None:
        return ranks
    if facts.target is not None and given not in (1, ranks):
        raise ConfigError(
            f"{PLACE}: 'draft_tensor_parallel_size' = {given} must be 1 or the target's "
            f"tensor_parallel_size = {ranks}"
        )
    return given


def check_draft(common: Mapping[str, Any], facts: DraftFacts) -> None:
    """Raise if the keys request something the draft does not support, or if it does not fit the target.

    Raises:
        ConfigError: naming the key, both values and the remedy.
    """
    for key in ("quantization", "parallel_drafting"):
        if common.get(key) and not _redeclares(facts.proposer, key):
            raise ConfigError(
                f"{PLACE}: method {facts.proposer.name!r} does not support {key!r} = {common[key]!r}: leave it out"
            )
    limit, longest = common.get("max_model_len"), None if facts.target is None else facts.target.max_model_len
    if limit is not None and longest is not None and limit > longest:
        raise ConfigError(f"{PLACE}: 'max_model_len' = {limit} is above the target's {longest}")


def _redeclares(proposer: type[Proposer], key: str) -> bool:
    """Return whether the plugin redeclares a key of `ProposerConfig`, which means that it supports it."""
    from specdec.interfaces import ProposerConfig

    classes = proposer.Config.__mro__
    return any(key in get_annotations(cls) for cls in classes[: classes.index(ProposerConfig)])
