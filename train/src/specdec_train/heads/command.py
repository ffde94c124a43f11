"""What `specdec train` does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from specdec import ConfigError, ModelError
from specdec_train.heads.made import to_bfloat16
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.run import train_head
from specdec_train.heads.texts import read_texts, split_texts


def train_from_files(
    method: str,
    target: str,
    data: Sequence[Path],
    out: Path,
    work: Path,
    *,
    changes: Mapping[str, Any],
    heldout_permille: int,
    max_minutes: float | None,
    is_resuming: bool,
) -> dict[str, Any]:
    """Train and write a head; returns what is reported.

    Args:
        method: the kind.
        target: directory, hub id or `zoo`.
        data: files of text.
        out: folder for the result.
        work: folder for checkpoints; removed once the result is written.
        changes: fields of `HeadRecipe` that differ from the kind's own.
        heldout_permille: share of texts held out, in thousandths.
        max_minutes: time budget of the steps.
        is_resuming: whether to go on from a checkpoint.

    Raises:
        ConfigError: for files, folders and numbers that do not do.
        ModelError: for a target that cannot be loaded.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already: name another folder with --out")
    for key, option, methods in (
        ("draft_vocab_size", "--draft-vocab-size", ("eagle3",)),
        ("num_steps", "--num-steps", ("eagle", "eagle3", "mtp", "mlp")),
    ):
        if key in changes and method not in methods:
            raise ConfigError(f"{option} says nothing for {method}: leave it out")
    try:
        recipe = replace(HEADS[method], **changes)
        train_texts, heldout_texts = split_texts(read_texts(data), heldout_permille)
        model, tokenizer = _load(target)
        documents, heldout = (
            [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
            for texts in (train_texts, heldout_texts)
        )
        trained = train_head(
            recipe,
            model,
            documents,
            heldout,
            _separator(tokenizer),
            work,
            max_minutes=max_minutes,
            resume=is_resuming,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    to_bfloat16(trained.made.module)
    trained.made.write(out)
    if method == "draft":
        tokenizer.save_pretrained(out)
    shutil.rmtree(work)
    return {
        "method": method,
        "out": str(out),
        "steps": trained.state.step,
        "seconds": round(trained.state.seconds),
        "heldout_divergence": round(trained.heldout_loss, 4),
        "acceptance": [place["sampled"] for place in trained.acceptance],
        "acceptance_greedy": [place["greedy"] for place in trained.acceptance],
    }


def _load(target: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    path = target
    if target == "zoo":
        import specdec_zoo

        path = str(specdec_zoo.path("target"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, use_safetensors=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"{target}: {str(error).strip().splitlines()[0]}") from None
    model.to(device)  # type: ignore[arg-type]  # transformers wraps it without its types
    return model, tokenizer


def _separator(tokenizer: PreTrainedTokenizerBase) -> int:
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if isinstance(token, int):
            return token
    raise ValueError("the tokenizer has neither a token that begins a text nor one that ends it")
