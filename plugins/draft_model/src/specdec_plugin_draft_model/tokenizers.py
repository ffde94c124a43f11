"""Chooses the vocabulary mapping between draft and target."""

from __future__ import annotations

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec import ConfigError, ModelError
from specdec.config import Checkpoint
from specdec.interfaces import TargetHandle
from specdec_plugin_draft_model.config import DraftModelConfig
from specdec_plugin_draft_model.fit import first_differences
from specdec_plugin_draft_model.vocabulary import shared_vocabulary
from specdec_runtime.drafting import DraftVocabulary, equal_vocabulary


def choose_vocabulary(config: DraftModelConfig, target: TargetHandle, num_draft: int) -> DraftVocabulary:
    """Return the mapping between the target's ids and the draft's.

    If a tokenizer is missing (the target was given as an object, or the draft has none), equal sizes are treated as equal
    vocabularies.

    Args:
        config: configuration that names the draft.
        target: the target.
        num_draft: number of the draft's logits.

    Raises:
        ConfigError: if the vocabularies differ and `use_heterogeneous_vocab` is not set; shows the differences.
    """
    info, model = target.info, config.model
    ours = target.tokenizer
    theirs = _tokenizer(config)
    sizes = f"the target has {info.vocab_size} ids, {model} has {num_draft}"
    if ours is None or theirs is None:
        if config.use_heterogeneous_vocab or num_draft != info.vocab_size:
            missing = "the target" if ours is None else str(model)
            raise ConfigError(
                f"speculative_config: 'model': {sizes}, and {missing} has no tokenizer to compare the other with: "
                "pass tokenizer= to LLM, or take a draft with the target's vocabulary"
            )
        return equal_vocabulary(info.vocab_size, num_draft, info.device)
    found = first_differences(ours.get_vocab(), theirs.get_vocab())
    if not found:
        return equal_vocabulary(info.vocab_size, num_draft, info.device)
    if not config.use_heterogeneous_vocab:
        raise ConfigError(
            f"speculative_config: 'model': the tokenizer of {model} is not the target's: {sizes}; the first ids that differ: "
            f"{found} (target and draft). Take a draft with the target's tokenizer, or set "
            "'use_heterogeneous_vocab': true"
        )
    try:
        return shared_vocabulary(ours, theirs, info.vocab_size, num_draft, info.device)
    except ValueError as error:
        raise ConfigError(f"speculative_config: 'use_heterogeneous_vocab': {error} ({sizes})") from None


def _tokenizer(config: DraftModelConfig) -> PreTrainedTokenizerBase | None:
    assert config.model is not None
    checkpoint = Checkpoint(config.model, config.revision)
    checkpoint.check_names()
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            config.model, revision=config.revision, trust_remote_code=False
        )
    except Exception as error:  # a damaged one may raise anything
        if checkpoint.file("tokenizer.json") is None:
            return None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{config.model}: its tokenizer cannot be read: {reason}") from error
    return tokenizer
