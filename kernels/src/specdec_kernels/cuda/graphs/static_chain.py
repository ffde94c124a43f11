"""The tensors of a recorded draft loop, and the loop itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import ChainRules, ChainWork, HostRows
from specdec.noise import Stream, node_word
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.paged_pass import Int64s, PassNumbers
from specdec_kernels.triton.noise import NoiseKeys, uniforms

_NUM_COLUMNS = 6
"""Numbers of each row of a loop: cached rows, first slot, three keys of the noise, and whether it is none of padding."""
_MOST_KEPT = 64
"""Most ids that a cut keeps: enough for a guess, and found without sorting all."""
_COLDEST = 1e-30
"""Below this temperature the best id is practically certain, and `1 / temperature` eventually overflows."""


@dataclass(frozen=True, slots=True)
class ChainShape:
    """The shape of a recorded loop."""

    last: PassShape
    """Shape of its last pass."""
    num_steps: int
    is_greedy: bool
    """Whether all rows choose greedily and no noise is needed."""
    rules: ChainRules
    has_cuts: bool = False
    """Whether a row is cut by top-k, top-p or min-p."""


class StaticChain:
    """A draft loop whose passes and choices read tensors at fixed addresses.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        max_positions: number of positions that the model supports.
        logits: `[B, V]` of a batch, for width, dtype and device.
        carry: `[B, F]` likewise; None for models.
    """

    def __init__(
        self,
        shape: ChainShape,
        max_context: int,
        max_positions: int,
        logits: torch.Tensor,
        carry: torch.Tensor | None,
    ) -> None:
        self.shape = shape
        self._max_positions = max_positions
        num_rows, device = shape.last.num_rows, logits.device
        size = max(num_rows, shape.last.num_requests)
        num_heat = 0 if shape.is_greedy else 2 * num_rows
        self.step = StaticPass(shape.last, max_context, device, carry, _NUM_COLUMNS * size + num_heat)
        self._logits = logits.new_zeros(num_rows, logits.shape[1])
        self._carry = None if carry is None else carry.new_zeros(num_rows, carry.shape[1])
        table, heat = self.step.more.split((_NUM_COLUMNS * size, num_heat))
        self._cached, self._first_slots, self._seeds, self._samples, self._positions, self._rows = table.view(
            _NUM_COLUMNS, size
        )
        self._heat = heat.view(torch.float32).view(4, num_heat // 2)
        """Temperature, top-k, top-p and min-p; empty if all rows choose greedily."""
        ids = shape.rules.target_ids
        self._target_ids = None if ids is None else torch.from_numpy(ids).to(device)
        self._num_noisy = shape.rules.num_ids if ids is None or shape.rules.is_drawn else int(ids[-1]) + 1

    @property
    def num_bytes(self) -> int:
        """Memory of the largest tensors."""
        return self.step.num_bytes + self._logits.nbytes + (0 if self._carry is None else self._carry.nbytes)

    def fill(
        self,
        host: HostRows,
        numbers: PassNumbers,
        logits: torch.Tensor,
        carry: torch.Tensor | None,
        work: ChainWork,
    ) -> None:
        """Set the inputs of a loop.

        Args:
            host: its last pass.
            numbers: the same pass in the form that the kernels read.
            logits: `[B, V]` of each row's last token.
            carry: `[B, F]` likewise.
            work: what to draft.
        """
        count = len(work.num_cached)
        self.step.send(host, numbers, None, more=self._numbers(work))
        self._logits[:count].copy_(logits)
        if self._carry is not None:
            assert carry is not None
            self._carry[:count].copy_(carry)

    def _numbers(self, work: ChainWork) -> Int64s:
        """Return what the choices of a loop read."""
        count, keys = len(work.num_cached), work.keys
        table = np.zeros((_NUM_COLUMNS, len(self._cached)), np.int64)
        table[0, :count], table[1, :count] = work.num_cached, work.first_slots
        table[2:5, :count] = keys.seeds, keys.samples, keys.positions
        table[5, :count] = 1
        heat = np.zeros(self._heat.shape, np.float32)
        if not self.shape.is_greedy:
            # A positive temperature that float32 rounds to 0 is still not greedy.
            heat[0, :count] = [max(t, _COLDEST) if t > 0 else 0.0 for t in work.temperatures]
        if self.shape.has_cuts:
            heat[1:, :count] = np.array(
                [(k or _MOST_KEPT, p, floor) for k, p, floor in work.cuts], np.float32
            ).T
        return np.concatenate((table.reshape(-1), heat.reshape(-1).view(np.int64)))

    def run(self, run_pass: Callable[[StaticPass], Tensors]) -> Tensors:
        """Run the loop.

        Returns:
            ids `[T, K]` of the target; confidences `[T, K]`, of width 0 if not requested; q `[T, K, num_ids]`, of width 0 if
            not requested or if all rows are greedy; logits `[T, V]` of the first pass, of width 0 if there is no pass.
        """
        rules, num_steps = self.shape.rules, self.shape.num_steps
        num_rows = self.shape.last.num_rows
        self.step.make_inputs()
        logits, carry = self._logits, self._carry
        ids, confidences, draft_probs = [], [], []
        first = logits[:, :0]
        for step in range(num_steps):
            index, law = self._choose(logits[:, : rules.num_ids].float(), step)
            ids.append(index if self._target_ids is None else self._target_ids[index])
            if rules.wants_confidences:
                confidences.append(law.gather(1, index[:, None])[:, 0])
            if rules.is_drawn and not self.shape.is_greedy:
                draft_probs.append(law)
            if step + 1 < num_steps:
                self._advance(ids[-1], step, carry)
                logits, *carried = run_pass(self.step)
                carry = None if carry is None else carried[0]
                first = logits if step == 0 else first
        none = first.new_zeros((num_rows, 0), dtype=torch.float32)
        return (
            torch.stack(ids, 1),
            torch.stack(confidences, 1) if confidences else none,
            torch.stack(draft_probs, 1) if draft_probs else none[:, None],
            first.clone(),
        )

    def _choose(self, scores: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return for each row an index `[T]` into `scores [T, num_ids]`, and its distribution `[T, num_ids]`."""
        best = scores.argmax(-1)
        rules = self.shape.rules
        if self.shape.is_greedy:
            return best, scores.softmax(-1) if rules.wants_confidences else scores
        temperatures = self._heat[0, :, None]
        is_hot = temperatures > 0
        heat = torch.where(is_hot, temperatures, 1.0)
        law = ((scores - scores.amax(-1, keepdim=True)) / heat).softmax(-1)
        if self.shape.has_cuts:
            law = self._cut(law)
        count = len(scores)
        word = node_word(Stream.DRAFT, step) if rules.is_drawn else node_word(Stream.TARGET)
        positions = self._positions[:count] + (0 if rules.is_drawn else step)
        keys = NoiseKeys(self._seeds[:count], positions, self._samples[:count])
        noise = -torch.log1p(-uniforms(keys, torch.full_like(positions, word), self._num_noisy))
        if self._target_ids is not None and not rules.is_drawn:
            noise = noise[:, self._target_ids]
        return torch.where(is_hot[:, 0], (noise / law.double()).argmin(-1), best), law

    def _cut(self, law: torch.Tensor) -> torch.Tensor:
        """Return distributions `[T, num_ids]` without what the cuts leave out, and of any row only the best ids."""
        top_k, top_p, min_p = self._heat[1:, :, None]
        best = law.topk(min(_MOST_KEPT, law.shape[1])).values
        ranks = torch.arange(best.shape[1], device=best.device)
        keep = (best.cumsum(-1) - best < top_p) & (ranks < top_k) & (best >= min_p * best[:, :1])
        least = torch.where(keep, best, torch.inf).amin(-1, keepdim=True)
        return torch.where(law >= least, law, 0.0)

    def _advance(self, token_ids: torch.Tensor, step: int, carry: torch.Tensor | None) -> None:
        """Write the inputs of the pass over the tokens just chosen.

        All requests run as many steps as the longest chain needs. Positions are clamped to the last one that the model
        supports; tokens that a request chooses beyond its limit are dropped.
        """
        batch, rows = self.step.batch, self.step.rows
        is_real = self._rows > 0
        place = torch.where(is_real, self._cached + step, 0)
        count = len(batch.token_ids)
        batch.token_ids.copy_(torch.where(is_real[:count], token_ids, 0))
        batch.positions.copy_(place[:count].clamp_max(self._max_positions - 1))
        rows.slots.copy_(torch.where(is_real, self._first_slots + place, -1)[:count])
        rows.context_lens.copy_((place + self._rows)[: len(rows.context_lens)])
        if carry is not None:
            assert self.step.features is not None
            self.step.features.copy_(carry)
