"""One training run of the zoo target: tokenizer, data, model and loop, in a folder that can be resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdec_train.claim import claim
from specdec_train.loop import Evaluation, LoopConfig, RunState, loop_config, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import packed_text
from specdec_train.precision import round_to_bfloat16
from zoo_recipe.corpus import Corpus, read_corpus, stdlib_root
from zoo_recipe.documents import training_texts
from zoo_recipe.growth import Growth, grown
from zoo_recipe.recipe import Recipe
from zoo_recipe.target import (
    build_target,
    mean_loss,
    next_token_loss,
    target_config,
)
from zoo_recipe.tokenizer import END_OF_TEXT, encode, load_tokenizer, token_id, train_tokenizer

_GROWN = "grown"
"""Folder of the checkpoints after the growth."""


@dataclass(frozen=True)
class HeldoutLoss:
    """Loss on held-out text, computed in float32.

    Args:
        nats_per_token: mean cross-entropy of a token.
        bits_per_byte: the same per byte of text, comparable between tokenizers.
        num_tokens: tokens predicted.
    """

    nats_per_token: float
    bits_per_byte: float
    num_tokens: int


@dataclass(frozen=True)
class TrainedTarget:
    """The result of a run, in memory.

    Args:
        corpus: the files and their split.
        tokenizer: trained on the training split.
        model: final weights, rounded to bfloat16 as they are shipped, stored in float32.
        state: steps, seconds and loss curve.
        heldout: loss of the rounded weights on all held-out text.
        num_train_tokens: tokens of one epoch, separators and dialogues included.
    """

    corpus: Corpus
    tokenizer: PreTrainedTokenizerFast
    model: LlamaForCausalLM
    state: RunState
    heldout: HeldoutLoss
    num_train_tokens: int


def train_target(
    recipe: Recipe, folder: Path, *, max_minutes: float | None = None, resume: bool = False
) -> TrainedTarget:
    """Train the target of `recipe`, grow it and continue training, keeping checkpoints in `folder`.

    Args:
        recipe: all hyperparameters of the run.
        folder: tokenizer and checkpoints; a run with the same recipe can be resumed from it.
        max_minutes: time budget of the steps, None for no limit.
        resume: continue the run in `folder`.

    Raises:
        ValueError: `resume` is set and `folder` holds a run of another recipe.
    """
    torch.set_num_threads(recipe.threads)
    for place in (folder, folder / _GROWN):
        claim(place, json.loads(json.dumps(asdict(recipe))), resume=resume)
    corpus = read_corpus(stdlib_root(), heldout_permille=recipe.heldout_permille, only=recipe.only)
    tokenizer = run_tokenizer(
        corpus,
        folder / "tokenizer",
        vocab_size=recipe.vocab_size,
        max_length=recipe.shape.max_position_embeddings,
    )
    end_of_text = token_id(tokenizer, END_OF_TEXT)
    heldout_ids = encode(tokenizer, [file.text for file in corpus.split("heldout")])
    text = packed_text(
        encode(tokenizer, training_texts(corpus, recipe)),
        heldout_ids,
        separator=end_of_text,
        seq_len=recipe.seq_len,
        eval_windows=recipe.eval_windows,
        seed=recipe.seed,
    )
    model = build_target(
        target_config(recipe.shape, vocab_size=len(tokenizer), end_of_text=end_of_text), recipe.seed
    )

    def stage(
        model: LlamaForCausalLM, config: LoopConfig, rates: Recipe | Growth, done: int, place: Path
    ) -> RunState:
        loss = partial(next_token_loss, model)
        return train(
            model,
            OptimizerPair(
                model, muon_lr=rates.muon_lr, adamw_lr=rates.adamw_lr, weight_decay=recipe.weight_decay
            ),
            lambda step: recipe.repeats.put_into(
                text.train.batch(done + step, recipe.batch_size),
                done + step,
                vocab_size=len(tokenizer),
                seed=recipe.seed,
            ),
            loss,
            lambda: Evaluation(mean_loss(loss, text.spread, recipe.micro_batch)),
            config,
            place,
            resume=resume,
        )

    growth = recipe.growth
    minutes = (
        (None, None)
        if max_minutes is None
        else (max_minutes * (1 - growth.share), max_minutes * growth.share)
    )
    config = loop_config("target", recipe, minutes[0])
    first = stage(model, config, recipe, 0, folder)
    round_to_bfloat16(model)
    model = grown(model, growth.num_layers).train()
    second_config = replace(
        config,
        title="grown target",
        max_steps=growth.max_steps,
        max_seconds=None if minutes[1] is None else minutes[1] * 60,
        schedule=growth.schedule,
    )
    second = stage(model, second_config, growth, first.step, folder / _GROWN)
    state = first.followed_by(second)
    round_to_bfloat16(model).train(False)
    final = heldout_loss(model, text.heldout, recipe.micro_batch, corpus, heldout_ids)
    return TrainedTarget(corpus, tokenizer, model, state, final, text.train.num_tokens)


def heldout_loss(
    model: LlamaForCausalLM,
    windows: Tensor,
    micro_batch: int,
    corpus: Corpus,
    heldout_ids: Sequence[Sequence[int]],
) -> HeldoutLoss:
    """Loss on all held-out text.

    Args:
        model: the trained model.
        windows: `[N, T + 1]` the text.
        micro_batch: windows per forward pass.
        corpus: the files that it comes from.
        heldout_ids: the token ids of each.
    """
    nats = mean_loss(partial(next_token_loss, model), windows, micro_batch)
    tokens_per_byte = sum(len(ids) + 1 for ids in heldout_ids) / corpus.num_bytes("heldout")
    num_tokens = windows.size(0) * (windows.size(1) - 1)
    return HeldoutLoss(nats, nats * tokens_per_byte / math.log(2), num_tokens)


def run_tokenizer(
    corpus: Corpus, folder: Path, *, vocab_size: int, max_length: int
) -> PreTrainedTokenizerFast:
    """The run's tokenizer: trained, saved and loaded again, so that a resumed run has the same one."""
    train_tokenizer(
        (file.text for file in corpus.split("train")), vocab_size=vocab_size, max_length=max_length
    ).save_pretrained(folder)
    return load_tokenizer(folder)
