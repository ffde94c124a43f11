"""Recipes of the zoo's draft models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specdec_train.schedule import Schedule
from zoo_recipe.repeats import Repeats


@dataclass(frozen=True)
class DraftRecipe:
    """How a draft model is distilled from the target.

    Args:
        starts_from: artefact that provides the initial weights.
        kept_layers: layers of that artefact to keep, in this order; empty for all.
        repeats: steps that include a sequence of repeated random tokens.
        seq_len: tokens a sequence predicts.
        batch_size: sequences per optimizer step.
        micro_batch: sequences per forward pass; divides `batch_size`.
        max_steps: optimizer steps.
        muon_lr, adamw_lr, weight_decay, max_grad_norm: optimizer settings, rates at their peak.
        schedule: shape of the learning rate over the run.
        eval_every, eval_windows: steps between held-out evaluations and windows looked at in each.
        checkpoint_every: steps between checkpoints.
        seed: seed of weights and data order.
        threads: torch threads.
    """

    starts_from: str
    kept_layers: tuple[int, ...] = ()
    repeats: Repeats = field(default_factory=lambda: Repeats(100, 350))
    seq_len: int = 512
    batch_size: int = 8
    micro_batch: int = 8
    max_steps: int = 1200
    muon_lr: float = 0.02
    adamw_lr: float = 0.004
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    schedule: Schedule = field(default_factory=Schedule)
    eval_every: int = 50
    eval_windows: int = 16
    checkpoint_every: int = 25
    seed: int = 1
    threads: int = 2

    @property
    def tokens_per_step(self) -> int:
        """Tokens one optimizer step predicts."""
        return self.batch_size * self.seq_len

    def tiny(self) -> DraftRecipe:
        """The same procedure in seconds, for tests; to be used with `Recipe.tiny`."""
        return replace(
            self,
            kept_layers=self.kept_layers[:1],
            repeats=Repeats(5, 10),
            seq_len=64,
            batch_size=2,
            micro_batch=2,
            max_steps=10,
            eval_every=5,
            eval_windows=2,
            checkpoint_every=5,
        )


DRAFTS = {
    "draft": DraftRecipe(
        starts_from="target",
        kept_layers=(0, 6, 12),
        batch_size=4,
        micro_batch=4,
        max_steps=3000,
        muon_lr=0.02,
        adamw_lr=0.003,
        eval_every=200,
        checkpoint_every=100,
        repeats=Repeats(0, 0),
    ),
}
"""Draft models by artefact name, in the order in which they can be trained."""
