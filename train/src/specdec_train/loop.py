"""The training loop for any model and loss, resumable after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from specdec_train.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from specdec_train.interruption import Interrupted, IsInterrupted, never
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import micro_batches
from specdec_train.precision import autocast
from specdec_train.progress import RunProgress, time_left
from specdec_train.schedule import Schedule, progress_of

LossFunction = Callable[[Tensor], Tensor]
"""Takes token ids `[B, T + 1]`, returns the mean loss as a scalar."""


@dataclass(frozen=True)
class LoopConfig:
    """How long and how to train.

    Args:
        title: name shown in the progress lines.
        max_steps: planned optimizer steps.
        max_seconds: time budget for the steps (held-out evaluations included), None for no limit; with
            a budget the learning rate follows steps or time, whichever is further along.
        batch_size: sequences per optimizer step.
        micro_batch: sequences per forward pass; divides `batch_size`.
        max_grad_norm: gradients are scaled down to this norm.
        schedule: shape of the learning rate.
        eval_every: steps between calls of `evaluate`.
        checkpoint_every: steps between checkpoints.
        checkpoint_seconds: maximum time between checkpoints.
        eval_seconds: maximum time between calls of `evaluate`; None for no limit.
    """

    title: str
    max_steps: int
    max_seconds: float | None
    batch_size: int
    micro_batch: int
    max_grad_norm: float
    schedule: Schedule
    eval_every: int
    checkpoint_every: int
    checkpoint_seconds: float = 120.0
    eval_seconds: float | None = None


class Plan(Protocol):
    """What every recipe says of its loop."""

    @property
    def max_steps(self) -> int:
        """Planned optimizer steps."""

    @property
    def batch_size(self) -> int:
        """Sequences per optimizer step."""

    @property
    def micro_batch(self) -> int:
        """Sequences per forward pass; divides `batch_size`."""

    @property
    def max_grad_norm(self) -> float:
        """Gradients are scaled down to this norm."""

    @property
    def schedule(self) -> Schedule:
        """Shape of the learning rate."""

    @property
    def eval_every(self) -> int:
        """Steps between calls of `evaluate`."""

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints."""


def loop_config(title: str, recipe: Plan, max_minutes: float | None) -> LoopConfig:
    """Convert a recipe to the configuration of the training loop."""
    return LoopConfig(
        title=title,
        max_steps=recipe.max_steps,
        max_seconds=None if max_minutes is None else max_minutes * 60,
        batch_size=recipe.batch_size,
        micro_batch=recipe.micro_batch,
        max_grad_norm=recipe.max_grad_norm,
        schedule=recipe.schedule,
        eval_every=recipe.eval_every,
        checkpoint_every=recipe.checkpoint_every,
    )


@dataclass(frozen=True)
class Evaluation:
    """The held-out loss, and for drafts and heads the acceptance rate per position."""

    loss: float
    acceptance: tuple[float, ...] = ()


@dataclass(frozen=True)
class LogEntry:
    """One point of the loss curve; the training loss is the mean since the previous entry."""

    step: int
    seconds: float
    train_loss: float
    heldout_loss: float
    lr_multiplier: float
    acceptance: tuple[float, ...] = ()


@dataclass
class RunState:
    """The progress of a run."""

    step: int = 0
    seconds: float = 0.0
    log: list[LogEntry] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def followed_by(self, later: RunState) -> RunState:
        """Return this run and a run that continued from its end as one run."""
        moved = [
            replace(entry, step=self.step + entry.step, seconds=round(self.seconds + entry.seconds, 1))
            for entry in later.log
        ]
        return RunState(self.step + later.step, self.seconds + later.seconds, self.log + moved, later.losses)


def train(
    model: nn.Module,
    optimizer: OptimizerPair,
    batches: Callable[[int], Tensor],
    loss_function: LossFunction,
    evaluate: Callable[[], Evaluation],
    config: LoopConfig,
    folder: Path,
    *,
    resume: bool,
    on_progress: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    is_interrupted: IsInterrupted = never,
) -> RunState:
    """Train until the steps or the time are used up.

    Args:
        model: the model, trained in place.
        optimizer: its optimizers.
        batches: returns the token ids `[batch_size, T + 1]` of a step; deterministic in the step.
        loss_function: mean loss of a micro-batch.
        evaluate: evaluates the current model on held-out text.
        config: settings of the run.
        folder: checkpoint folder.
        resume: continue from the newest checkpoint in `folder` if there is one.
        on_progress: called before each step with the progress of the run in [0, 1), by steps or time.
        clock: returns seconds, for the time budget.
        is_interrupted: called after each step; True stops the run.

    Returns:
        steps, seconds and the loss curve, including resumed parts.

    Raises:
        Interrupted: if a stop was requested; a checkpoint of the last step has been written.
        ValueError: if a checkpoint cannot be written.
    """
    state = RunState()
    checkpoint = latest_checkpoint(folder) if resume else None
    if checkpoint is not None:
        state = _restore(load_checkpoint(checkpoint), model, optimizer)
    offset = clock() - state.seconds
    saved, looked = state.seconds, state.seconds
    done = progress_of(state.step, config.max_steps, state.seconds, config.max_seconds)
    with RunProgress(config.title, config.max_steps) as progress:
        while done < 1.0:
            if on_progress is not None:
                on_progress(done)
            # The rate at the middle of this step, so that neither the first nor the last rate is zero.
            multiplier = config.schedule.multiplier(done + 0.5 / config.max_steps)
            state.losses.append(
                _step(model, optimizer, batches(state.step), loss_function, config, multiplier)
            )
            state.step += 1
            state.seconds = clock() - offset
            done = progress_of(state.step, config.max_steps, state.seconds, config.max_seconds)
            left = time_left(state.seconds, done, config.max_seconds)
            progress.update(state.step, f"loss {state.losses[-1]:.3f} {left}", done)
            is_stopped = is_interrupted() and done < 1.0
            is_late = config.eval_seconds is not None and state.seconds - looked >= config.eval_seconds
            if done >= 1.0 or (not is_stopped and (is_late or state.step % config.eval_every == 0)):
                entry = _log_entry(state, evaluate(), multiplier)
                progress.line(state.step, f"{_describe(entry)} {left}")
                state.seconds = looked = clock() - offset
            is_due = (
                state.step % config.checkpoint_every == 0
                or state.seconds - saved >= config.checkpoint_seconds
            )
            if is_due or is_stopped or done >= 1.0:
                path = save_checkpoint(folder, state.step, _snapshot(state, model, optimizer))
                saved = state.seconds
                if is_stopped:
                    raise Interrupted(f"stopped after step {state.step}, kept in {path}")
    return state


def _step(
    model: nn.Module,
    optimizer: OptimizerPair,
    batch: Tensor,
    loss_function: LossFunction,
    config: LoopConfig,
    multiplier: float,
) -> float:
    """Take one optimizer step over `batch` in micro-batches; return its mean loss."""
    total = 0.0
    for part in micro_batches(batch, config.micro_batch):
        with autocast(next(model.parameters()).device.type):
            loss = loss_function(part) * (len(part) / len(batch))
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm, error_if_nonfinite=True)
    optimizer.step(multiplier)
    return total


def _log_entry(state: RunState, heldout: Evaluation, multiplier: float) -> LogEntry:
    """Add a point to the loss curve and reset the running mean."""
    mean = sum(state.losses) / len(state.losses)
    entry = LogEntry(
        state.step,
        round(state.seconds, 1),
        round(mean, 4),
        round(heldout.loss, 4),
        round(multiplier, 4),
        tuple(round(share, 4) for share in heldout.acceptance),
    )
    state.log.append(entry)
    state.losses.clear()
    return entry


def _describe(entry: LogEntry) -> str:
    """A log entry as one line."""
    stands = " ".join(f"{share:.2f}" for share in entry.acceptance)
    return (
        f"train {entry.train_loss:.3f} held-out {entry.heldout_loss:.3f} "
        f"lr x{entry.lr_multiplier:.2f} {entry.seconds:.0f} s" + (f" accepted {stands}" if stands else "")
    )


def _snapshot(state: RunState, model: nn.Module, optimizer: OptimizerPair) -> dict[str, Any]:
    """Return everything that a resumed run needs."""
    return {"state": asdict(state), "model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _restore(snapshot: dict[str, Any], model: nn.Module, optimizer: OptimizerPair) -> RunState:
    """Restore model and optimizer from a snapshot."""
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    fields = dict(snapshot["state"])
    fields["log"] = [
        LogEntry(**{**entry, "acceptance": tuple(entry.get("acceptance", ()))}) for entry in fields["log"]
    ]
    return RunState(**fields)
