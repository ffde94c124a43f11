"""Sequential stages: what corrects the guesses of a block, left to right, by the tokens chosen before each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdec_plugin_dflash.stage_settings import StageSettings

if TYPE_CHECKING:
    from specdec_plugin_dflash.settings import DFlashSettings

Corrected = tuple[Tensor, Tensor]
"""Logits `[R, V']` of a step, and the memory `[R, M]` that the next step reads."""


class Stage(nn.Module, ABC):
    """Corrects one guess after another; implements `specdec_runtime.interfaces.Steps`.

    What is given of each request are its block's logits and features of its states, joined.

    Args:
        settings: those of the head.
    """

    reads_whole_block: ClassVar[bool] = False
    """Whether a shorter block than the one it was trained with changes what it computes."""

    def __init__(self, settings: DFlashSettings) -> None:
        super().__init__()
        assert settings.stage is not None
        self.num_logits, self.feature_size = settings.num_logits, settings.layer_config.hidden_size
        self.has_confidence = settings.stage.confidence is not None
        self.memory_size = 0

    def features(self, states: Tensor, count: int, before: Tensor) -> Tensor:
        """Return what steps read of a block, `[..., count, F]`.

        Args:
            states: `[..., n, H]` final states of all rows of the block.
            count: number of rows, the last ones, that predict a token.
            before: `[...]` the token before the block's first one.
        """
        return states[..., -count:, :]

    def begin(self, given: Tensor) -> tuple[Tensor, Tensor]:
        """Return what step 0 reads, for `[R, n, V' + F]` given."""
        return given, given.new_zeros(len(given), self.memory_size, dtype=self._dtype)

    def step(
        self, index: int, states: tuple[Tensor, Tensor], token_ids: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return what the next step reads, and logits `[R, V']`, after tokens `[R]`, the target's ids."""
        given, memory = states
        logits, features = self._split(index, given)
        logits, memory = self.correct(index, logits, features, memory, token_ids)
        return (given, memory), logits

    def confidences(self, index: int, states: tuple[Tensor, Tensor], token_ids: Tensor) -> Tensor:
        """Return the probability `[R]` that the token of a step is accepted; see `step`, and `has_confidence`."""
        return self.acceptance(self._split(index, states[0])[1], token_ids)

    def acceptance(self, features: Tensor, token_ids: Tensor) -> Tensor:
        """Return the probability of acceptance `[R]` for features `[R, F]` behind tokens `[R]`."""
        raise NotImplementedError

    @abstractmethod
    def correct(
        self, index: int, logits: Tensor, features: Tensor, memory: Tensor, token_ids: Tensor
    ) -> Corrected:
        """Correct one guess.

        Args:
            index: its place among the guesses of the block.
            logits: `[R, V']` the block's.
            features: `[R, F]`.
            memory: `[R, M]` of the step before.
            token_ids: `[R]` the token before it, as the target's ids.
        """

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _split(self, index: int, given: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = given[:, index].split((self.num_logits, self.feature_size), -1)
        return logits, features.to(self._dtype)


class MarkovStage(Stage):
    """DSpark: a bias of low rank from the token before, which states and a recurrent state may gate; and a confidence head."""

    def __init__(self, settings: DFlashSettings, stage: StageSettings) -> None:
        super().__init__(settings)
        rank, size = stage.rank, self.feature_size
        self._kind = stage.kind
        self.memory_size = rank if stage.kind == "rnn" else 0
        self._runs_anchor = stage.kind == "rnn" and not settings.predicts_at_anchor
        if self._runs_anchor:
            self.feature_size = 2 * size
        parts: dict[str, nn.Module] = {
            "markov_w1": nn.Embedding(settings.layer_config.vocab_size, rank),
            "markov_w2": nn.Linear(rank, self.num_logits, bias=False),
        }
        if stage.kind == "gated":
            parts["gate_proj"] = nn.Linear(size + rank, rank)
        elif stage.kind == "rnn":
            parts["joint_proj"] = nn.Linear(2 * rank + size, 3 * rank)
        self.markov_head = nn.ModuleDict(parts)
        if stage.confidence is not None:
            self._is_joined = stage.confidence == "joined"
            self.confidence_head = nn.ModuleDict({"proj": nn.Linear(size + rank * self._is_joined, 1)})

    def features(self, states: Tensor, count: int, before: Tensor) -> Tensor:
        """See `Stage.features`: states, and for a recurrent state that begins with the last committed token's row this one."""
        own = states[..., -count:, :]
        return torch.cat((own, states[..., :1, :].expand_as(own)), -1) if self._runs_anchor else own

    def acceptance(self, features: Tensor, token_ids: Tensor) -> Tensor:
        """See `Stage.acceptance`."""
        features = features.chunk(1 + self._runs_anchor, -1)[0]
        if self._is_joined:
            features = torch.cat((features, self.markov_head["markov_w1"](token_ids)), -1)
        logits: Tensor = self.confidence_head["proj"](features)
        return logits[..., 0].float().sigmoid()

    def correct(
        self, index: int, logits: Tensor, features: Tensor, memory: Tensor, token_ids: Tensor
    ) -> Corrected:
        """See `Stage.correct`."""
        parts = self.markov_head
        latent = parts["markov_w1"](token_ids)
        if self._kind == "gated":
            latent = latent * parts["gate_proj"](torch.cat((features, latent), -1)).sigmoid()
        elif self._kind == "rnn":
            own, *anchor = features.chunk(1 + self._runs_anchor, -1)
            if index == 0 and anchor:
                memory, _ = self._recurred(memory, latent, anchor[0])
            memory, latent = self._recurred(memory, latent, own)
        return logits + parts["markov_w2"](latent), memory

    def _recurred(self, memory: Tensor, latent: Tensor, features: Tensor) -> Corrected:
        """Return the recurrent state after a row, and what its bias is projected from."""
        joint = self.markov_head["joint_proj"](torch.cat((memory, latent, features), -1))
        gate, candidate, latent = joint.chunk(3, -1)
        return candidate.tanh().lerp(memory, gate.sigmoid()), latent.tanh()


class RecurrentStage(Stage):
    """Domino: a recurrent state of the embedded tokens since the last committed one corrects guesses from some place on.

    Args:
        settings: those of the head.
        stage: those of its stage.
        embed: embeds tokens.
    """

    def __init__(
        self, settings: DFlashSettings, stage: StageSettings, embed: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(settings)
        size, self.memory_size = self.feature_size, stage.state_size
        self._embed, self._first = embed, stage.num_unchanged
        self.prefix_gru = nn.GRU(size, stage.state_size, bias=False)
        self.embed_proj = nn.Sequential(
            nn.Linear(size + stage.state_size, stage.rank, bias=False),
            nn.SiLU(),
            nn.Linear(stage.rank, self.num_logits, bias=False),
        )

    def correct(
        self, index: int, logits: Tensor, features: Tensor, memory: Tensor, token_ids: Tensor
    ) -> Corrected:
        """See `Stage.correct`."""
        weights = (self.prefix_gru.get_parameter(f"weight_{side}_l0") for side in ("ih", "hh"))
        memory = torch.gru_cell(self._embed(token_ids), memory, *weights)
        if index < self._first:
            return logits, memory
        return logits + self.embed_proj(torch.cat((features, memory), -1)), memory


class SelectorStage(Stage):
    """DFlash2: of the candidates with the highest logits, how well each follows the token before; no other id is drafted."""

    def __init__(self, settings: DFlashSettings, stage: StageSettings) -> None:
        super().__init__(settings)
        size, self.feature_size = self.feature_size, stage.rank
        self._num_candidates = stage.num_candidates
        self.candidate_selector = nn.ModuleDict(
            {"hidden_projection": nn.Linear(size, stage.rank, bias=False)}
        )
        for name in ("predecessor_codebook", "successor_codebook"):
            table = nn.Parameter(torch.zeros(self.num_logits, stage.rank))
            self.candidate_selector.register_parameter(name, table)

    def features(self, states: Tensor, count: int, before: Tensor) -> Tensor:
        """See `Stage.features`: states projected to the rank of the tables."""
        projected: Tensor = self.candidate_selector["hidden_projection"](states[..., -count:, :])
        return projected

    def correct(
        self, index: int, logits: Tensor, features: Tensor, memory: Tensor, token_ids: Tensor
    ) -> Corrected:
        """See `Stage.correct`."""
        parts = self.candidate_selector
        unary, ids = logits.topk(self._num_candidates, -1)
        context = features * parts.get_parameter("predecessor_codebook")[token_ids]
        follows = (parts.get_parameter("successor_codebook")[ids] @ context[..., None])[..., 0]
        return torch.full_like(logits, -torch.inf).scatter(-1, ids, unary + follows), memory


class RefinerStage(Stage):
    """XPress: causal mixing over the block of token before, state and mean state, in a space of low rank.

    XPress repeats parallel passes over the block until tokens stay; left to right, one step each gives the same tokens.
    """

    reads_whole_block = True

    def __init__(self, settings: DFlashSettings, stage: StageSettings) -> None:
        super().__init__(settings)
        rank, size = stage.rank, self.feature_size
        self._rank, self.feature_size = rank, 2 * rank
        self._first = 0 if settings.predicts_at_anchor else 1
        wide = stage.expansion * rank
        self.refiner_head = nn.ModuleDict(
            {
                "token_embed": nn.Embedding(settings.layer_config.vocab_size, rank),
                "down_h": nn.Linear(size, rank, bias=False),
                "down_g": nn.Linear(size, rank, bias=False),
                "in_proj": nn.Linear(3 * rank, rank, bias=False),
                "mlp_gate": nn.Linear(rank, wide, bias=False),
                "mlp_up": nn.Linear(rank, wide, bias=False),
                "mlp_down": nn.Linear(wide, rank, bias=False),
                "readout": nn.Linear(rank, self.num_logits, bias=False),
            }
        )
        mixer = nn.Parameter(torch.zeros(rank, settings.block_size, settings.block_size))
        self.refiner_head.register_parameter("mix_l", mixer)

    def features(self, states: Tensor, count: int, before: Tensor) -> Tensor:
        """See `Stage.features`: what the state gives to a row, and what the last committed token's row gives to it, where that
        one predicts nothing."""
        parts, mean = self.refiner_head, states.mean(-2, keepdim=True).expand_as(states)
        weight = parts.get_submodule("in_proj").get_parameter("weight")[:, : 2 * self._rank]
        own = F.linear(torch.cat((parts["down_h"](states), parts["down_g"](mean)), -1), weight)
        mixed = torch.zeros_like(own)
        if self._first:
            anchor = own[..., 0, :] + self._entered(before)
            mixed = parts.get_parameter("mix_l")[:, : own.shape[-2], 0].T * anchor[..., None, :]
        return torch.cat((own, mixed), -1)[..., -count:, :]

    def correct(
        self, index: int, logits: Tensor, features: Tensor, memory: Tensor, token_ids: Tensor
    ) -> Corrected:
        """See `Stage.correct`: the memory are the rows before, before mixing."""
        parts, own = self.refiner_head, index + self._first
        entry, mixed = features.chunk(2, -1)
        memory = torch.cat((memory, entry + self._entered(token_ids)), -1)
        rows = memory.unflatten(-1, (-1, self._rank))
        weight = parts.get_parameter("mix_l")[:, own, self._first : own + 1]
        x = rows[:, -1] + mixed + (rows * weight.T).sum(1)
        x = x + parts["mlp_down"](F.silu(parts["mlp_gate"](x)) * parts["mlp_up"](x))
        return logits + parts["readout"](x), memory

    def _entered(self, token_ids: Tensor) -> Tensor:
        """Return what the tokens before give to rows, `[..., rank]`."""
        weight = self.refiner_head.get_submodule("in_proj").get_parameter("weight")[:, 2 * self._rank :]
        return F.linear(self.refiner_head["token_embed"](token_ids), weight)


def make_stage(settings: DFlashSettings, embed: Callable[[Tensor], Tensor]) -> Stage | None:
    """Return the stage of a head, with weights of no meaning; None if it has none.

    Args:
        settings: those of the head.
        embed: embeds tokens, in the head's dtype.
    """
    stage = settings.stage
    if stage is None:
        return None
    if stage.family == "domino":
        return RecurrentStage(settings, stage, embed)
    kinds: dict[str, Callable[[DFlashSettings, StageSettings], Stage]] = {
        "dspark": MarkovStage,
        "dflash2": SelectorStage,
        "xpress": RefinerStage,
    }
    return kinds[stage.family](settings, stage)
