"""Implementation of `specdec train`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdec import ConfigError, EngineOptions
from specdec_runtime.loading import LoadedTarget, load_target
from specdec_train.answers.prompts import read_chat_prompts
from specdec_train.checkpoint import latest_checkpoint
from specdec_train.export import replaced_folder
from specdec_train.heads.budget import Budget
from specdec_train.heads.data import HeadData, answer_data, text_data
from specdec_train.heads.gather import gather
from specdec_train.heads.made import to_bfloat16
from specdec_train.heads.make import read_layers
from specdec_train.heads.measure import configs_of, measure
from specdec_train.heads.options import FINETUNED, TrainOptions
from specdec_train.heads.recipe import BLOCK_METHODS, HEADS, HeadRecipe, finetuning, for_answers
from specdec_train.heads.report import coverage, report_of
from specdec_train.heads.run import TrainedHead, train_head
from specdec_train.heads.texts import read_texts, split_texts
from specdec_train.interruption import Interruption, IsInterrupted
from specdec_train.precision import matmul_dtype


def train_from(options: TrainOptions) -> dict[str, Any]:
    """Collect training data, train and write a head, and measure it; return the report.

    Raises:
        ConfigError: if a file, folder or number is unsuitable, or something cannot be written.
        ModelError: if the target cannot be loaded.
        Interrupted: if the run was stopped; `is_resuming` continues it.
    """
    _check(options)
    try:
        with Interruption() as interruption:
            return _run(options, lambda: interruption.is_requested)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check(options: TrainOptions) -> None:
    out, work, method = options.out, options.work, options.method
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists: name another folder with --out")
    if not options.has_answers and not options.data:
        raise ConfigError("nothing to learn from: give --prompts, --self-instruct, --answers or --data")
    if options.has_answers and options.data:
        raise ConfigError(
            "--data trains on every token of a text and cannot be combined with prompts or answers: leave one of them out"
        )
    for key, option, methods in (
        ("draft_vocab_size", "--draft-vocab-size", ("eagle3", *BLOCK_METHODS)),
        ("num_steps", "--num-steps", ("eagle", "eagle3", *BLOCK_METHODS, "mtp", "mlp")),
    ):
        if key in options.changes and method not in methods:
            raise ConfigError(f"{option} has no effect for {method}: leave it out")
    if options.finetuned_from:
        if method not in FINETUNED:
            raise ConfigError(
                f"--finetune continues the training of {' and '.join(FINETUNED)} heads, not of {method}: leave it out"
            )
        if "draft_vocab_size" in options.changes:
            raise ConfigError(
                "--draft-vocab-size cannot change the draft vocabulary of the head given with --finetune: leave it out"
            )
    if options.is_resuming:
        return
    if latest_checkpoint(work) is not None:
        raise ConfigError(f"{work} holds a run that was interrupted: go on with --resume, or remove it")
    own = options.answers_file
    if (options.prompts or options.num_written) and own.exists() and own not in options.answers:
        raise ConfigError(
            f"{own} holds answers of a run that was interrupted: go on with --resume, or use them with --answers {own}"
        )


def _run(options: TrainOptions, is_interrupted: IsInterrupted) -> dict[str, Any]:
    recipe = _recipe(options)
    questions = read_chat_prompts(options.prompts)
    texts = split_texts(read_texts(options.data), options.heldout_permille) if options.data else None
    budget = Budget(None if options.minutes is None else options.minutes * 60.0, options.work / "budget.json")
    loaded = load_target(EngineOptions(model=options.target, weights="widen"))  # heads begin with its weights
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    facts: dict[str, Any] = {}
    if texts is None:
        layers = read_layers(loaded.model, recipe) if loaded.model.device.type == "cpu" else None
        collected = gather(options, questions, recipe.seq_len, loaded, budget, is_interrupted, layers)
        train, heldout = (
            [one for one in collected.answers if one.is_held_out(options.heldout_permille) is side]
            for side in (False, True)
        )
        if not train or not heldout:
            raise ConfigError(
                f"{len(collected.answers)} answers leave nothing to {'hold out' if train else 'train on'}: give more prompts "
                "or more --minutes, or another --heldout-permille"
            )
        data = answer_data(recipe, train, heldout, _separator(tokenizer), collected.recorded)
        prompts: Sequence[Sequence[int]] = [one.prompt for one in heldout]
        facts["answers"] = len(collected.answers)
        facts["answer_tokens"] = sum(len(one.answer) for one in collected.answers)
        facts["prompts_left_out"] = dict(collected.left_out)
    else:
        documents, unseen = (
            [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in side]
            for side in texts
        )
        data = text_data(recipe, documents, unseen, _separator(tokenizer))
        prompts = [ids[:64] for ids in unseen]
    trained = train_head(
        recipe,
        _in_training(loaded, options.target),
        data,
        options.work,
        max_minutes=budget.train_minutes(measures=options.measures),
        resume=options.is_resuming,
        is_interrupted=is_interrupted,
    )
    return facts | _finish(options, recipe, loaded, trained, data, prompts, budget, is_interrupted)


def _finish(
    options: TrainOptions,
    recipe: HeadRecipe,
    loaded: LoadedTarget,
    trained: TrainedHead,
    data: HeadData,
    prompts: Sequence[Sequence[int]],
    budget: Budget,
    is_interrupted: IsInterrupted,
) -> dict[str, Any]:
    """Write the head, and measure it."""
    if not trained.state.step:
        raise ConfigError(
            f"{options.minutes:g} minutes leave no time to train: give more with --minutes; what has been answered is kept"
        )
    to_bfloat16(trained.made.module)
    try:
        with replaced_folder(options.out) as staging:
            trained.made.write(staging)
            if options.method == "draft":
                assert loaded.tokenizer is not None
                loaded.tokenizer.save_pretrained(staging)
    except OSError as error:
        raise ConfigError(
            f"{options.out} cannot be written ({error.strerror}): make room and write it with --resume --minutes 0"
        ) from None
    shutil.rmtree(options.work)
    configs = configs_of(options.method, options.out, recipe.num_steps)
    found = (
        measure(loaded, prompts, configs, budget.measure_seconds, is_interrupted)
        if options.measures
        else None
    )
    return report_of(options, trained, configs[0], found) | coverage(trained.made.target_ids, data)


def _recipe(options: TrainOptions) -> HeadRecipe:
    """Return the recipe of the run; a resumed run keeps its number of steps."""
    recipe = HEADS[options.method]
    if options.has_answers:
        recipe = for_answers(recipe, has_limit=options.minutes is not None)
    changes = dict(options.changes)
    if options.finetuned_from:
        recipe = finetuning(recipe, options.finetuned_from)
    if "draft_vocab_size" in changes:
        changes["draft_vocab_coverage"] = 0.0
    stamp = options.work / "recipe.json"
    if options.is_resuming and "max_steps" not in changes and stamp.exists():
        changes["max_steps"] = json.loads(stamp.read_text())["max_steps"]
    return replace(recipe, **changes)


def _in_training(loaded: LoadedTarget, name: str) -> PreTrainedModel:
    """Return the target with the attention of `transformers`, in a dtype suitable for training."""
    if loaded.dtype not in (torch.float32, matmul_dtype(loaded.device.type)):
        loaded = load_target(EngineOptions(model=name, dtype="float32", weights="widen"))
    loaded.model.set_attn_implementation("sdpa")
    return loaded.model


def _separator(tokenizer: PreTrainedTokenizerBase) -> int:
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if isinstance(token, int):
            return token
    raise ValueError("the tokenizer has neither a token that begins a text nor one that ends it")
