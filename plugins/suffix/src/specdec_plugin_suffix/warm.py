"""Converts a file of past outputs to a cache file."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec import ConfigError
from specdec.config import Checkpoint, resolve_name, target_facts
from specdec.text import fingerprint
from specdec_cli import quiet_libraries
from specdec_plugin_suffix.cache_file import read_responses, write_responses
from specdec_plugin_suffix.outputs_file import read_outputs


def warm_cache(outputs: Path, model: str, out: Path, *, is_appending: bool) -> dict[str, object]:
    """Write a cache file from a file of outputs.

    Args:
        outputs: JSON lines.
        model: the target, for its tokenizer and the size of its vocabulary; no weights are loaded.
        out: the cache file.
        is_appending: keep existing responses of `out` before the new ones; otherwise `out` must not exist.

    Returns:
        a report: `cache`, `num_responses`, `num_tokens`, `num_empty` (outputs without tokens, left out).

    Raises:
        ConfigError: naming file, line and remedy.
    """
    if os.path.exists(out) and not is_appending:
        raise ConfigError(f"--out: {str(out)!r} exists: give --append to add to it, or another name")
    if not os.path.isdir(out.absolute().parent):
        raise ConfigError(f"--out: there is no folder {str(out.absolute().parent)!r}: make it first")
    tokenizer, vocab_size = _tokenizer(resolve_name(model))
    owner = fingerprint(tokenizer)
    responses = read_responses(out, owner, vocab_size) if os.path.exists(out) else []
    num_empty = 0
    for place, output in read_outputs(outputs):
        ids = tokenizer(output, add_special_tokens=False)["input_ids"] if isinstance(output, str) else output
        if max(ids, default=0) >= vocab_size:
            raise ConfigError(f"{place}: token id {max(ids)}: {model} has ids below {vocab_size}")
        if ids:
            responses.append(array("i", ids))
        num_empty += not ids
    if not responses:
        raise ConfigError(f"{outputs} holds no outputs")
    try:
        write_responses(out, responses, owner)
    except OSError as error:
        raise ConfigError(f"--out: {str(out)!r} cannot be written: {error.strerror}") from None
    return {
        "cache": str(out),
        "num_responses": len(responses),
        "num_tokens": sum(map(len, responses)),
        "num_empty": num_empty,
    }


def _tokenizer(model: str) -> tuple[PreTrainedTokenizerBase, int]:
    """Return a model's tokenizer and the size of its vocabulary."""
    vocab_size = target_facts(model).vocab_size
    quiet_libraries()
    Checkpoint(model).check_names()
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"--model: {model!r} has no tokenizer that can be loaded: {reason}") from None
    return tokenizer, vocab_size or len(tokenizer)
