"""The recipe of a head: all hyperparameters of its training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from specdec_train.schedule import Schedule

HeadMethod = Literal["draft", "eagle", "eagle3", "dflash", "dspark", "mtp", "mlp"]
BLOCK_METHODS = ("dflash", "dspark")
"""Heads that guess a block in one pass."""


@dataclass(frozen=True)
class HeadRecipe:
    """How a head is trained.

    Args:
        method: the kind of head.
        num_steps: recurrent steps simulated in training; for an MLP speculator, its number of heads, and for a DFlash or
            DSpark head the tokens of a block that it guesses.
        first_share: share of the run, from its start, that simulates only one step: the next token is learnt
            fastest.
        last_share: share of the run, at its end, in which the loss is `target_probs.rejection`, which spends a head's
            limited capacity on the acceptance rate.
        reuse: how often each position of the text is trained on while the target's states for it are kept
            (`replay.Replay`), for heads that read one state only; 0 runs the target in each step.
        step_decay: factor on the loss weight from one step to the next.
        regression: weight of the distance between the head's states and the target's.
        num_layers: decoder layers of a DFlash or DSpark head, which reads the target's states at as many depths and one.
        markov_rank: rank of the bias that a DSpark head has from the token before.
        draft_vocab_size: draft vocabulary of an EAGLE-3, DFlash or DSpark head, the most frequent ids of the training text; 0
            for all ids.
        finetuned_from: directory or hub id of a published head whose training is continued, `zoo` for the zoo's;
            empty for a new head.
        draft_vocab_coverage: share of the training text's tokens that the draft vocabulary covers at least, if
            that sets its size instead (see `make.LEAST_DRAFT_IDS`); 0 if not.
        is_fitted: whether a new EAGLE-3 head starts with the best linear prediction; see `closed_form.fit`.
        aux_shares: relative depths of the target layers whose inputs an EAGLE-3 head reads; empty for the
            default layers of published heads.
        inner_size: D of an MLP speculator; 0 for the target's hidden size. Twice that size starts best; see
            `make_mlp`.
        is_tied: whether the heads of an MLP speculator share their weights.
        kept_layers: target layers that initialise a draft model; negative ones count from the end. Empty for
            the best.
        num_kept_layers: how many layers to select if they are not given; see `best_layers`.
        seq_len: tokens of a window.
        batch_size: windows per optimizer step.
        micro_batch: windows per forward pass; divides `batch_size`.
        max_steps: optimizer steps.
        muon_lr, adamw_lr, weight_decay, max_grad_norm: optimizer settings, rates at their peak.
        schedule: shape of the learning rate over the run.
        eval_every, eval_windows: steps between held-out evaluations and windows looked at in each.
        checkpoint_every: steps between checkpoints.
        seed: seed of weights and data order.
        threads: torch threads on a host without a GPU.
    """

    method: HeadMethod
    num_steps: int = 4
    first_share: float = 0.0
    last_share: float = 0.0
    reuse: int = 0
    step_decay: float = 0.8
    regression: float = 0.0
    num_layers: int = 2
    markov_rank: int = 64
    draft_vocab_size: int = 0
    draft_vocab_coverage: float = 0.0
    finetuned_from: str = ""
    is_fitted: bool = False
    aux_shares: tuple[float, ...] = ()
    inner_size: int = 0
    is_tied: bool = False
    kept_layers: tuple[int, ...] = ()
    num_kept_layers: int = 3
    seq_len: int = 512
    batch_size: int = 2
    micro_batch: int = 2
    max_steps: int = 4000
    muon_lr: float = 0.03
    adamw_lr: float = 0.004
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    schedule: Schedule = field(default_factory=Schedule)
    eval_every: int = 200
    eval_windows: int = 16
    checkpoint_every: int = 100
    seed: int = 1
    threads: int = 2

    def __post_init__(self) -> None:
        if self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch={self.micro_batch} must divide batch_size={self.batch_size}")
        for name in ("first_share", "last_share", "draft_vocab_coverage"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)} must be in [0, 1]")
        if self.draft_vocab_size and self.draft_vocab_coverage:
            raise ValueError("draft_vocab_size and draft_vocab_coverage cannot both be set")
        if self.reuse < 0:
            raise ValueError(f"reuse={self.reuse} must be at least 0")
        if self.reuse and self.method != "mlp":
            raise ValueError(
                f"reuse={self.reuse}: heads of the kind {self.method!r} look at more than one state"
            )
        if self.num_kept_layers < 1:
            raise ValueError(f"num_kept_layers={self.num_kept_layers} must be at least 1")
        if self.num_steps >= self.seq_len:
            raise ValueError(f"seq_len={self.seq_len} must be above num_steps={self.num_steps}")

    @property
    def tokens_per_step(self) -> int:
        """Tokens one optimizer step reads, each counted once regardless of how many steps predict it."""
        return self.batch_size * self.seq_len

    def tiny(self) -> HeadRecipe:
        """The same procedure in seconds, for tests."""
        return replace(
            self,
            draft_vocab_size=min(self.draft_vocab_size, 300),
            inner_size=min(self.inner_size, 32),
            seq_len=64,
            batch_size=2,
            micro_batch=2,
            max_steps=10,
            eval_every=5,
            eval_windows=2,
            checkpoint_every=5,
        )


HEADS: dict[str, HeadRecipe] = {
    "draft": HeadRecipe("draft", muon_lr=0.02, adamw_lr=0.003),
    "eagle": HeadRecipe("eagle", num_steps=3, first_share=0.3, regression=0.5, muon_lr=0.015, adamw_lr=0.002),
    "eagle3": HeadRecipe("eagle3", num_steps=3, first_share=0.4, muon_lr=0.025, adamw_lr=0.003),
    "dflash": HeadRecipe("dflash", num_steps=7, muon_lr=0.02, adamw_lr=0.003),
    "dspark": HeadRecipe("dspark", num_steps=7, muon_lr=0.02, adamw_lr=0.003),
    "mtp": HeadRecipe("mtp", num_steps=2, first_share=0.3, muon_lr=0.015, adamw_lr=0.002),
    "mlp": HeadRecipe("mlp", num_steps=3, is_tied=True, last_share=0.4, reuse=2),
}
"""Default recipe of each kind."""

_FINETUNING_RATE = 0.3
"""Factor on the learning rates: at a new head's, acceptance of the zoo's head for SmolLM2 first fell from 0.45 to 0.43."""
_ENDLESS = 1_000_000
"""Number of steps for a run that ends by its time limit."""
_DRAFT_VOCAB_COVERAGE = 0.98
"""Ids that are named cost time in training and in each drafted token. `make.LEAST_DRAFT_IDS` is a lower limit."""


def for_answers(recipe: HeadRecipe, *, has_limit: bool) -> HeadRecipe:
    """Return the recipe for training on conversations, with a loss on answers only.

    Args:
        recipe: the recipe for training on text.
        has_limit: whether the run ends by its time limit instead of its number of steps.
    """
    is_eagle3 = recipe.method == "eagle3"
    if is_eagle3:  # it starts near the optimum, so the rates are lower
        recipe = replace(
            recipe,
            is_fitted=True,
            aux_shares=(0.27, 0.7, 0.97),
            muon_lr=0.006,
            adamw_lr=0.0005,
            first_share=0.3,
        )
    return replace(
        recipe,
        seq_len=1024,
        batch_size=2,
        micro_batch=2,
        reuse=0,
        eval_windows=48,
        draft_vocab_coverage=_DRAFT_VOCAB_COVERAGE if recipe.method in ("eagle3", *BLOCK_METHODS) else 0.0,
        max_steps=_ENDLESS if has_limit else recipe.max_steps,
    )


def finetuning(recipe: HeadRecipe, head: str) -> HeadRecipe:
    """Return the recipe for continuing the training of a published head.

    Args:
        recipe: the recipe for a new head.
        head: see `HeadRecipe.finetuned_from`.
    """
    return replace(
        recipe,
        finetuned_from=head,
        first_share=0.0,
        muon_lr=_FINETUNING_RATE * recipe.muon_lr,
        adamw_lr=_FINETUNING_RATE * recipe.adamw_lr,
    )


ZOO_HEADS: dict[str, HeadRecipe] = {
    "eagle": HEADS["eagle"],
    "eagle3": replace(HEADS["eagle3"], draft_vocab_size=3072),
    "mtp": HEADS["mtp"],
}
"""The heads of the zoo by artefact name, which is also the name of their method."""
