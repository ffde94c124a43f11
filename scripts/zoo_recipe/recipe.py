"""The recipe: all hyperparameters of the zoo target."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_train.schedule import Schedule
from zoo_recipe.growth import Growth
from zoo_recipe.repeats import Repeats


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the Llama-architecture target."""

    hidden_size: int = 256
    num_layers: int = 10
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 704
    max_position_embeddings: int = 1024


@dataclass(frozen=True)
class Recipe:
    """How the zoo target is trained.

    Args:
        shape: sizes of the model.
        vocab_size: tokenizer size, special tokens and bytes included.
        only: relative paths of the corpus to use; empty for the whole standard library.
        heldout_permille: share of files held out, in thousandths.
        num_written, num_edited: functions added as one-turn dialogues that ask to write or edit them.
        repeats: steps that include a sequence of repeated random tokens.
        seq_len: tokens a sequence predicts.
        batch_size: sequences per optimizer step.
        micro_batch: sequences per forward pass; divides `batch_size`.
        max_steps: optimizer steps.
        muon_lr, adamw_lr, weight_decay, max_grad_norm: optimizer settings, rates at their peak.
        schedule: shape of the learning rate over the run.
        growth: the second part of the run: more layers, and steps to train them.
        eval_every, eval_windows: steps between held-out evaluations and windows looked at in each.
        checkpoint_every: steps between checkpoints.
        prompts_per_kind: held-out prompts to cut of each kind.
        seed: seed of weights and data order.
        threads: torch threads.
    """

    shape: ModelShape = field(default_factory=ModelShape)
    vocab_size: int = 4096
    only: tuple[str, ...] = ()
    heldout_permille: int = 70
    num_written: int = 1000
    num_edited: int = 4000
    repeats: Repeats = field(default_factory=lambda: Repeats(650, 950))
    seq_len: int = 1024
    batch_size: int = 4
    micro_batch: int = 4
    max_steps: int = 1500
    muon_lr: float = 0.02
    adamw_lr: float = 0.003
    weight_decay: float = 0.02
    max_grad_norm: float = 1.0
    schedule: Schedule = field(default_factory=Schedule)
    growth: Growth = field(default_factory=Growth)
    eval_every: int = 50
    eval_windows: int = 8
    checkpoint_every: int = 25
    prompts_per_kind: int = 60
    seed: int = 1
    threads: int = 2

    def __post_init__(self) -> None:
        if self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch={self.micro_batch} must divide batch_size={self.batch_size}")

    @property
    def tokens_per_step(self) -> int:
        """Tokens one optimizer step predicts."""
        return self.batch_size * self.seq_len

    @classmethod
    def tiny(cls) -> Recipe:
        """The same procedure in seconds: a few files, two layers that become three, thirty steps. For tests."""
        return cls(
            shape=ModelShape(
                hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=128
            ),
            vocab_size=600,
            only=TINY_FILES,
            num_written=20,
            num_edited=20,
            repeats=Repeats(5, 10),
            seq_len=128,
            batch_size=4,
            micro_batch=2,
            max_steps=20,
            growth=Growth(num_layers=3, max_steps=10),
            eval_every=10,
            eval_windows=4,
            checkpoint_every=5,
            prompts_per_kind=4,
        )


TINY_FILES = (
    "bisect.py",
    "calendar.py",
    "codeop.py",
    "colorsys.py",
    "configparser.py",
    "csv.py",
    "fractions.py",
    "heapq.py",
    "modulefinder.py",
    "py_compile.py",
    "shlex.py",
    "textwrap.py",
    "trace.py",
    "webbrowser.py",
)
