"""A draft for the zoo's target with a vocabulary of its own: part of the target's, under other ids."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import specdec_zoo

NUM_TOKENS = 2048
_ROWS = ("model.embed_tokens.weight", "lm_head.weight")
_SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@cache
def own_vocabulary_draft() -> str:
    """Return the directory of the zoo's `draft`, cut to its first 2,048 tokens, with ids in reverse order.

    A BPE tokenizer learns its tokens in order of id, so the first ones need no later merge. The folder is removed
    when the process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="own-vocabulary-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = specdec_zoo.path("draft")
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    for name in ("config.json", "generation_config.json"):
        content = _read(source / name)
        changed = {key: _own_id(content[key]) for key in _SPECIAL_IDS if content.get(key) is not None}
        if "vocab_size" in content:
            changed["vocab_size"] = NUM_TOKENS
        (folder / name).write_text(json.dumps(content | changed))
    tokenizer = json.dumps(_cut(_read(source / "tokenizer.json")), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    kept = torch.arange(NUM_TOKENS).flip(0)  # row i is that of the token whose own id is i
    weights = load_file(source / "model.safetensors")
    rows = {name: weights[name][kept].contiguous() for name in _ROWS if name in weights}
    save_file(weights | rows, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def _own_id(token_id: int) -> int:
    """The draft's id of a token with this id in the target's vocabulary."""
    return NUM_TOKENS - 1 - token_id


def _cut(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The content of a `tokenizer.json` with the first tokens only, and the merges that give one of them."""
    vocab = {token: i for token, i in tokenizer["model"]["vocab"].items() if i < NUM_TOKENS}
    merges = [pair for pair in tokenizer["model"]["merges"] if pair.replace(" ", "") in vocab]
    own = {token: _own_id(i) for token, i in vocab.items()}
    added = [token | {"id": own[token["content"]]} for token in tokenizer["added_tokens"]]
    model = tokenizer["model"] | {"vocab": own, "merges": merges}
    return tokenizer | {"added_tokens": added, "model": model}


def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
