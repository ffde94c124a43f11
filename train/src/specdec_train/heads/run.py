"""One training run of a head."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_train.claim import claim
from specdec_train.distillation import overlap
from specdec_train.heads.chained import ChainedObjective
from specdec_train.heads.factored import merge
from specdec_train.heads.made import Made, make
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.replay import Replay
from specdec_train.laws import divergence, rejection
from specdec_train.loop import Evaluation, LossFunction, RunState, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import PackedDocuments, micro_batches, windows
from specdec_train.run import loop_config
from specdec_train.target import round_to_bfloat16

_STRETCH = 32
"""Places of a stretch that a replayed batch is made of."""
_NUM_KEPT = 256
"""Windows whose states are kept for it."""


@dataclass(frozen=True)
class TrainedHead:
    """What a run leaves behind.

    Args:
        made: the head, its weights rounded to bfloat16 as they will be shipped, and how to write it.
        state: steps, seconds and loss curve.
        heldout_loss: divergence from the target on all held-out text, in nats.
        acceptance: how often a guess stands there, per place behind the text; see `recurrent.overlap`.
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
    documents: Sequence[Sequence[int]],
    heldout: Sequence[Sequence[int]],
    separator: int,
    folder: Path,
    *,
    max_minutes: float | None = None,
    resume: bool = False,
) -> TrainedHead:
    """Train a head for a target.

    Args:
        recipe: every number of the run.
        target: the target, in float32.
        documents: token ids of each training text.
        heldout: token ids of each held-out text.
        separator: token id put in front of each text.
        folder: checkpoints; a run with the same recipe can be resumed from it.
        max_minutes: time budget of the steps, None for no limit.
        resume: continue from what `folder` holds.

    Raises:
        ValueError: if there is too little text, the target's layers do not do, or `folder` holds a run of another recipe.
    """
    if target.device.type == "cpu":
        torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    claim(folder, json.loads(json.dumps(asdict(recipe))), resume=resume)
    data = PackedDocuments(documents, separator=separator, window=recipe.seq_len + 1, seed=recipe.seed)
    seen = windows(heldout, separator=separator, window=recipe.seq_len + 1)
    spread = seen[torch.linspace(0, len(seen) - 1, min(recipe.eval_windows, len(seen))).long()]
    made = make(recipe, target, documents)
    made.module.to(target.device)

    def evaluate(tokens: Tensor) -> tuple[float, list[dict[str, float]]]:
        return _evaluate(made, tokens, recipe.micro_batch, target.device)

    def on_the_way() -> Evaluation:
        loss, accepted = evaluate(spread)
        return Evaluation(loss, tuple(place["sampled"] for place in accepted))

    def on_progress(done: float) -> None:
        made.objective.measure = rejection if done >= 1.0 - recipe.last_share else divergence
        if isinstance(made.objective, RecurrentObjective):
            made.objective.num_trained = 1 if done < recipe.first_share else recipe.num_steps

    batch_of, loss_of = (
        _replayed(recipe, made, data) if recipe.reuse else _windows(recipe, made, data, target.device)
    )
    state = train(
        made.module,
        OptimizerPair(
            made.module, muon_lr=recipe.muon_lr, adamw_lr=recipe.adamw_lr, weight_decay=recipe.weight_decay
        ),
        batch_of,
        loss_of,
        on_the_way,
        loop_config(recipe.method, recipe, max_minutes),
        folder,
        resume=resume,
        on_progress=on_progress,
    )
    merge(made.module)
    round_to_bfloat16(made.module)
    made.module.train(False)
    loss, accepted = evaluate(seen)
    return TrainedHead(made, state, loss, accepted, data.num_tokens)


def _windows(
    recipe: HeadRecipe, made: Made, data: PackedDocuments, device: torch.device
) -> tuple[Callable[[int], Tensor], LossFunction]:
    """The windows of a step, and their loss."""
    return lambda step: data.batch(step, recipe.batch_size).to(device), made.objective.loss


def _replayed(
    recipe: HeadRecipe, made: Made, data: PackedDocuments
) -> tuple[Callable[[int], Tensor], LossFunction]:
    """Where the stretches of a step are from, and their loss."""
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
    made: Made, tokens: Tensor, micro_batch: int, device: torch.device
) -> tuple[float, list[dict[str, float]]]:
    """Return the mean divergence over windows `[N, W]`, and how often guesses stand at each place."""
    made.objective.measure = divergence
    total = 0.0
    sums: dict[int, Tensor] = {}
    for part in micro_batches(tokens, micro_batch):
        part = part.to(device)
        total += made.objective.loss(part).item() * len(part)
        for place, guess in enumerate(made.objective.guesses(part)):
            shares = torch.stack(overlap(guess.logits, guess.wanted, made.target_ids)).double().cpu() * len(
                part
            )
            sums[place] = sums[place] + shares if place in sums else shares
    accepted = [
        {"sampled": round(sampled, 4), "greedy": round(greedy, 4)}
        for sampled, greedy in ((sums[place] / len(tokens)).tolist() for place in sorted(sums))
    ]
    return total / len(tokens), accepted


def facts_of(trained: TrainedHead, recipe: HeadRecipe) -> dict[str, Any]:
    """What the record says of a run."""
    parameters = sum(p.numel() for p in trained.made.module.parameters() if p.requires_grad)
    return {
        "heldout": {"divergence": round(trained.heldout_loss, 4), "acceptance": trained.acceptance},
        "num_parameters": parameters,
        "recipe": asdict(recipe),
    }
