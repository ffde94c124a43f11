"""One training run of a head."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_plugin_eagle import Eagle3Head
from specdec_train.checkpoint import latest_checkpoint
from specdec_train.claim import claim
from specdec_train.heads.acceptance import Acceptance
from specdec_train.heads.block import BlockObjective
from specdec_train.heads.chained import ChainedObjective
from specdec_train.heads.closed_form import fit, whiten_inputs
from specdec_train.heads.data import HeadData, split_batch
from specdec_train.heads.factored import merge
from specdec_train.heads.kept_states import KeptStates
from specdec_train.heads.made import Made, make
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.replay import Replay
from specdec_train.interruption import IsInterrupted, never
from specdec_train.loop import Evaluation, LossFunction, RunState, loop_config, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import PackedDocuments
from specdec_train.precision import autocast, round_to_bfloat16
from specdec_train.target_probs import divergence, rejection

_STRETCH = 32
"""Positions per stretch of a replayed batch."""
_NUM_KEPT = 256
"""Number of windows whose states are kept for replay."""
_FIT_SHARE = 0.1
"""Maximum share of the training time for the least-squares initialisation of a head."""
_EVAL_SECONDS = 60.0
"""Maximum time between evaluations on held-out conversations."""


@dataclass(frozen=True)
class TrainedHead:
    """The result of a run.

    Args:
        made: the head, its weights rounded to bfloat16 as they are shipped, and how to write it.
        state: steps, seconds and loss curve.
        heldout_loss: divergence from the target on all held-out text, in nats.
        acceptance: acceptance rates on held-out text, per position after the text; see
            `acceptance.Acceptance`.
        num_train_tokens: tokens of one epoch.
    """

    made: Made
    state: RunState
    heldout_loss: float
    acceptance: list[dict[str, float]]
    num_train_tokens: int


def train_head(
    recipe: HeadRecipe,
    target: PreTrainedModel,
    data: HeadData,
    folder: Path,
    *,
    max_minutes: float | None = None,
    resume: bool = False,
    is_interrupted: IsInterrupted = never,
) -> TrainedHead:
    """Train a head for a target.

    Args:
        recipe: all hyperparameters of the run.
        target: the target, in float32 or in the dtype of matrix products during training.
        data: training and held-out data.
        folder: checkpoint folder; a run with the same recipe can be resumed from it.
        max_minutes: time budget of the steps, including resumed parts; None for no limit.
        resume: continue the run in `folder`.
        is_interrupted: called after each step; True stops the run.

    Raises:
        ValueError: if there is too little text, the target's layers are unsuitable, or `folder` holds a run
            of another recipe.
        Interrupted: if a stop was requested.
    """
    if target.device.type == "cpu":
        torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    claim(folder, json.loads(json.dumps(asdict(recipe))), resume=resume)
    made = make(recipe, target, data.documents, data.guessed)
    made.module.to(target.device)
    if data.packed is None and target.device.type == "cpu":  # the target dominates the cost there
        made.objective.reader = kept = KeptStates(made.objective.reader)
        kept.know(data.recorded)

    if recipe.is_fitted and not (resume and latest_checkpoint(folder)):
        started = time.monotonic()
        assert isinstance(made.module, Eagle3Head) and isinstance(made.objective, RecurrentObjective)
        seconds = float("inf") if max_minutes is None else _FIT_SHARE * max_minutes * 60.0
        initialise = whiten_inputs if recipe.finetuned_from else fit
        initialise(made.module, made.objective.reader, data.batch_of, seconds)
        if max_minutes is not None:
            max_minutes = max(max_minutes - (time.monotonic() - started) / 60.0, 0.0)

    def on_the_way() -> Evaluation:
        loss, accepted = _evaluate(made, data.spread, target.device)
        return Evaluation(loss, tuple(place["sampled"] for place in accepted))

    def on_progress(done: float) -> None:
        made.objective.measure = rejection if done >= 1.0 - recipe.last_share else divergence
        if isinstance(made.objective, RecurrentObjective):
            made.objective.num_trained = 1 if done < recipe.first_share else recipe.num_steps
        if isinstance(made.objective, BlockObjective):
            made.objective.done = done

    batch_of, loss_of = (
        _replayed(recipe, made, data.packed)
        if recipe.reuse and data.packed is not None
        else _windows(made, data, target.device)
    )
    config = loop_config(recipe.method, recipe, max_minutes)
    if (
        data.packed is None
    ):  # rows differ in length: the number of tokens limits a batch, and the clock triggers evaluations
        config = replace(config, micro_batch=recipe.tokens_per_step, eval_seconds=_EVAL_SECONDS)
    state = train(
        made.module,
        OptimizerPair(
            made.module, muon_lr=recipe.muon_lr, adamw_lr=recipe.adamw_lr, weight_decay=recipe.weight_decay
        ),
        batch_of,
        loss_of,
        on_the_way,
        config,
        folder,
        resume=resume,
        on_progress=on_progress,
        is_interrupted=is_interrupted,
    )
    merge(made.module)
    round_to_bfloat16(made.module)
    made.module.train(False)
    loss, accepted = _evaluate(made, data.heldout, target.device)
    return TrainedHead(made, state, loss, accepted, data.num_tokens)


def _windows(
    made: Made, data: HeadData, device: torch.device
) -> tuple[Callable[[int], Tensor], LossFunction]:
    """Return functions for the windows of a step and for their loss."""
    return lambda step: data.batch_of(step).to(device), lambda batch: made.objective.loss(*split_batch(batch))


def _replayed(
    recipe: HeadRecipe, made: Made, data: PackedDocuments
) -> tuple[Callable[[int], Tensor], LossFunction]:
    """Return functions for the positions of a step's stretches and for their loss."""
    objective = made.objective
    assert isinstance(objective, ChainedObjective)
    replay = Replay(
        objective.reader,
        data,
        batch_size=recipe.batch_size,
        length=min(_STRETCH, recipe.seq_len - recipe.num_steps),
        margin=recipe.num_steps,
        reuse=recipe.reuse,
        num_windows=_NUM_KEPT,
        seed=recipe.seed,
    )
    return replay.places, lambda places: objective.loss_of(*replay.at(places))


@torch.no_grad()
def _evaluate(
    made: Made, batches: Sequence[Tensor], device: torch.device
) -> tuple[float, list[dict[str, float]]]:
    """Return the mean divergence over batches, and the acceptance rates at each position."""
    made.objective.measure = divergence
    total, count = 0.0, 0
    accepted = Acceptance(made.target_ids)
    for batch in batches:
        with autocast(device.type):
            guesses = made.objective.guesses(*split_batch(batch.to(device)), is_whole=True)
            for step, guess in enumerate(guesses):
                if not len(guess.rows):
                    continue
                accepted.add(step, guess)
                total += divergence(guess.logits, guess.target_probs, guess.rows).item() * len(guess.rows)
                count += len(guess.rows)
    return total / max(count, 1), accepted.summary()


def facts_of(trained: TrainedHead, recipe: HeadRecipe) -> dict[str, Any]:
    """Return the manifest entries of a run."""
    parameters = sum(p.numel() for p in trained.made.module.parameters() if p.requires_grad)
    return {
        "heldout": {"divergence": round(trained.heldout_loss, 4), "acceptance": trained.acceptance},
        "num_parameters": parameters,
        "recipe": asdict(recipe),
    }
