"""The loss of heads that guess a block of tokens at once: DFlash."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_plugin_dflash import DFlashHead, forced_logits, run_blocks
from specdec_train.heads.guess import Guess, decayed_mean
from specdec_train.heads.loss_positions import LossPositions
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import Measure, divergence, target_probs_of


class BlockObjective:
    """Trains a head on blocks behind random positions of the text (arXiv 2602.06036).

    A block begins with the token at its position, the anchor, and goes on with masks. It sees the target's states before the
    anchor, and itself. A window has as many blocks as make up its length.

    Args:
        head: the head to train.
        reader: reads the target's states.
        decay: factor on the loss weight from one token of a block to the next.
    """

    def __init__(self, head: DFlashHead, reader: StateReader, *, decay: float) -> None:
        self._head, self.reader, self._decay = head, reader, decay
        self._num_steps = head.settings.max_tokens
        self.measure: Measure = divergence
        """The loss function."""
        self.done = 0.0
        """Share of the run that is done, which the anchors of a window depend on beside its text."""

    def loss(self, tokens: Tensor, is_answer: Tensor | None = None) -> Tensor:
        """Mean loss over `tokens [B, W]`, in nats: distance of the head's distribution from the target's.

        Args:
            tokens: the text.
            is_answer: `[B, W]` the tokens that count; None for all.
        """
        return decayed_mean(
            self.guesses(tokens, is_answer),
            lambda guess: self.measure(guess.logits, guess.target_probs, guess.rows),
            self._decay,
            tokens.device,
        )

    def guesses(
        self, tokens: Tensor, is_answer: Tensor | None = None, *, is_whole: bool = False
    ) -> Iterator[Guess]:
        """Yield the guesses of each token of the blocks in order.

        Args:
            tokens: `[B, W]`.
            is_answer: `[B, W]` mask of the tokens to train on; None for all.
            is_whole: whether to return the target's logits for all ids instead of the draft vocabulary only, and to choose
                the same anchors in every call.
        """
        places, target_ids = LossPositions(tokens, is_answer), self._head.target_ids
        states = self.reader.read(tokens[:, :-1], places.chosen, None if is_whole else target_ids)
        rows = tokens.shape[1] - self._num_steps
        target_logits = states.logits.flatten(0, -2)
        is_cut = is_whole and target_ids is not None
        target_probs = target_probs_of(target_logits[:, target_ids] if is_cut else target_logits)
        anchors = self._anchors(tokens, places.rows(rows, 0, 0)[0], rows, 0.0 if is_whole else self.done)
        number = torch.full((tokens.shape[0] * rows,), -1, device=tokens.device)
        number[anchors] = torch.arange(len(anchors), device=tokens.device)
        windows, firsts = anchors // rows, anchors % rows
        out = run_blocks(self._head, tokens, states.aux, windows, firsts)
        reach = torch.arange(-1, self._num_steps, device=tokens.device)
        before = tokens[windows[:, None], (firsts[:, None] + reach).clamp_min(0)]
        own = out[:, -self._num_steps :]
        for step, logits in enumerate(forced_logits(self._head, out, before)):
            at, of, _ = places.rows(rows, 0, step)
            taken = number[at] >= 0
            chosen = number[at[taken]]
            here = own[chosen, step]
            yield Guess(logits[chosen], target_probs, of[taken], chosen, target_logits, here, here)

    def _anchors(self, tokens: Tensor, candidates: Tensor, rows: int, done: float) -> Tensor:
        """Return some of the `[N]` candidates, indices into the flattened `[B, rows]`, ascending."""
        seed = zlib.crc32(tokens.cpu().numpy().tobytes()) + round(done * 1e6)
        generator = torch.Generator().manual_seed(seed)
        count = tokens.shape[0] * -(-rows // self._head.settings.block_size)
        order = torch.randperm(len(candidates), generator=generator)[:count]
        return candidates[order.to(candidates.device)].sort().values
