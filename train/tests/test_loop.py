"""The loop: loss goes down, a killed run resumes to the same weights, the clock bounds a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_train.checkpoint import latest_checkpoint, save_checkpoint
from specdec_train.loop import Evaluation, LoopConfig, RunState, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.schedule import Schedule

CONFIG = LoopConfig(
    title="test",
    max_steps=12,
    max_seconds=None,
    batch_size=4,
    micro_batch=2,
    max_grad_norm=1.0,
    schedule=Schedule(warmup=0.1, decay=0.4),
    eval_every=5,
    checkpoint_every=3,
)


class Killed(Exception):
    """Stands in for the end of the process."""


def batch(step: int) -> Tensor:
    """Counting modulo 7: learnable."""
    start = torch.randint(7, (4, 1), generator=torch.Generator().manual_seed(step))
    return (start + torch.arange(9)) % 7


def run(
    folder: Path,
    config: LoopConfig = CONFIG,
    *,
    resume: bool = False,
    kill_at: int | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[nn.Module, RunState]:
    """Train a bigram model."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(7, 16), nn.Linear(16, 16), nn.Linear(16, 7))

    def loss(tokens: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def batches(step: int) -> Tensor:
        if step == kill_at:
            raise Killed
        return batch(step)

    optimizer = OptimizerPair(model, muon_lr=0.05, adamw_lr=0.05, weight_decay=0.01)
    with torch.no_grad():
        heldout = batch(1000)
    state = train(
        model,
        optimizer,
        batches,
        loss,
        lambda: Evaluation(loss(heldout).item()),
        config,
        folder,
        resume=resume,
        clock=clock,
        on_progress=on_progress,
    )
    return model, state


def test_loss_goes_down(tmp_path: Path) -> None:
    _, state = run(tmp_path)
    assert state.step == 12
    assert [entry.step for entry in state.log] == [5, 10, 12]
    assert state.log[-1].heldout_loss < 0.7 * state.log[0].heldout_loss
    assert state.log[-1].train_loss < state.log[0].train_loss


@pytest.mark.parametrize("kill_at", [1, 3, 8, 11])
def test_killed_run_resumes_to_the_same_weights(tmp_path: Path, kill_at: int) -> None:
    model, state = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", kill_at=kill_at)
    resumed, resumed_state = run(tmp_path / "killed", resume=True)
    assert resumed_state == state
    for name, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_finished_run_resumes_to_itself(tmp_path: Path) -> None:
    model, state = run(tmp_path)
    again, again_state = run(tmp_path, resume=True, kill_at=12)
    assert again_state == state
    assert torch.equal(model[2].weight, again[2].weight)  # type: ignore[index]  # nn.Sequential


def test_clock_ends_a_run_on_a_decayed_rate(tmp_path: Path) -> None:
    config = replace(CONFIG, max_steps=1000, max_seconds=20.0)
    now = iter(range(10_000))
    _, state = run(tmp_path, config, clock=lambda: float(next(now)))
    assert state.step < 25
    assert state.seconds >= 20.0
    multipliers = [entry.lr_multiplier for entry in state.log]
    assert multipliers == sorted(multipliers, reverse=True)
    assert multipliers[-1] < 0.15


def test_progress_is_told_before_each_step_by_steps_or_time(tmp_path: Path) -> None:
    told: list[float] = []
    run(tmp_path / "steps", on_progress=told.append)
    assert told == [step / 12 for step in range(12)]
    told.clear()
    now = iter(range(10_000))
    config = replace(CONFIG, max_steps=1000, max_seconds=20.0)
    run(tmp_path / "time", config, clock=lambda: float(next(now)), on_progress=told.append)
    assert told == sorted(told)
    assert told[0] == 0.0
    assert 0.9 < told[-1] < 1.0


def test_a_run_that_diverges_stops(tmp_path: Path) -> None:
    config = replace(CONFIG, schedule=Schedule(warmup=0.0, decay=0.0))
    torch.manual_seed(1)
    model = nn.Linear(1, 1)
    optimizer = OptimizerPair(model, muon_lr=0.1, adamw_lr=0.1, weight_decay=0.0)
    with pytest.raises(RuntimeError, match="non-finite"):
        train(
            model,
            optimizer,
            batch,
            lambda tokens: model.weight.sum() * float("nan"),
            lambda: Evaluation(0.0),
            config,
            tmp_path,
            resume=False,
        )


def test_only_whole_checkpoints_count(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    for step in (5, 10, 100):
        save_checkpoint(tmp_path, step, {"step": step})
    (tmp_path / "step-0000200.partial").write_bytes(b"cut off")
    newest = latest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "step-0000100.pt"
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["step-0000010.pt", "step-0000100.pt"]
