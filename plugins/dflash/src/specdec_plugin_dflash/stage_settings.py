"""Settings of the sequential stage of a head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec import ModelError
from specdec_runtime.drafting.config_keys import factor_of, flag_of, number_of, size_of

_KINDS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True)
class StageSettings:
    """The settings of a stage.

    Args:
        family: `dspark`, `domino`, `dflash2` or `xpress`.
        rank: width of what it computes in.
        kind: DSpark: `vanilla`, `gated` or `rnn`.
        confidence: DSpark: what its confidence head reads: `states`, or `joined`, states and the token before; None without.
        state_size: Domino: width of the recurrent state.
        num_unchanged: Domino: guesses, the first ones of a block, that are not corrected.
        num_candidates: DFlash2: guesses of each place that are compared.
        expansion: XPress: width of the inner layer, in ranks.
    """

    family: str
    rank: int
    kind: str = "vanilla"
    confidence: str | None = None
    state_size: int = 0
    num_unchanged: int = 0
    num_candidates: int = 0
    expansion: int = 0


def read_stage(family: str, config: Mapping[str, Any], origin: str) -> StageSettings | None:
    """Return the settings of a family's stage; None if it has none.

    Args:
        family: see `variants.family_of`.
        config: the keys of the head, those of `dflash_config` among them.
        origin: location named in errors.

    Raises:
        ModelError: if keys are missing or have no meaning here.
    """
    described = f"a head of {family}"
    if family == "dspark":
        return _markov(config, origin)
    if family == "domino":
        return StageSettings(
            family,
            size_of(config, "emb_dim", origin, described),
            state_size=size_of(config, "gru_hidden_dim", origin, described),
            num_unchanged=number_of(config, "pure_draft_prefix_len", origin, least=0) or 0,
        )
    if family == "dflash2":
        return StageSettings(
            family,
            size_of(config, "selector_rank", origin, described),
            num_candidates=size_of(config, "selector_top_k", origin, described),
        )
    if family == "xpress":
        return StageSettings(
            family,
            size_of(config, "xpress_rank", origin, described),
            expansion=number_of(config, "xpress_mlp_ratio", origin, least=1) or 2,
        )
    return None


def _markov(config: Mapping[str, Any], origin: str) -> StageSettings | None:
    rank = number_of(config, "markov_rank", origin, least=0)
    if not rank:
        return None
    kind = str(config.get("markov_head_type") or "vanilla").lower()
    if kind not in _KINDS:
        raise ModelError(f"{origin}: markov_head_type is {kind!r} instead of {', '.join(_KINDS)}")
    is_trained = factor_of(config, "confidence_head_alpha", origin) is not None
    confidence = None
    if flag_of(config, "enable_confidence_head", origin, is_trained):
        confidence = "joined" if flag_of(config, "confidence_head_with_markov", origin) else "states"
    return StageSettings("dspark", rank, kind, confidence)
