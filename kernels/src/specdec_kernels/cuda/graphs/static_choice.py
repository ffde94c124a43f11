"""Chooses the tokens of a recorded loop, by numbers at fixed addresses."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch

from specdec.noise import Stream, node_word
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.noise import NoiseKeys, uniforms
from specdec_kernels.triton.process_logits import Cuts, process_logits
from specdec_runtime.interfaces import ChainRules, ChainWork

_MOST_KEPT = 64
"""Most ids that a cut keeps: enough for a guess, and found without sorting all."""
_COLDEST = 1e-30
"""Below this temperature the best id is practically certain, and `1 / temperature` eventually overflows."""
_NUM_HEATS = 4


class StaticChoice:
    """Chooses greedily, with the noise of `strict`, or by drawing from a separate stream.

    Args:
        rules: how tokens are chosen.
        keys: of the noise, of T rows or more.
        settings: `[2 * T]` int64, where `numbers` are; empty if all rows choose greedily.
        is_greedy: whether they do, and no noise is needed.
        has_cuts: whether a row may be cut by top-k, top-p or min-p: where q is kept always, but for greedy rows.
    """

    def __init__(
        self, rules: ChainRules, keys: NoiseKeys, settings: torch.Tensor, *, is_greedy: bool, has_cuts: bool
    ) -> None:
        self.rules, self.is_greedy, self._has_cuts = rules, is_greedy, has_cuts
        self._keys = keys
        self.settings = settings.view(torch.float32).view(_NUM_HEATS, -1 if len(settings) else 0)
        """`[4, T]` temperature, top-k, top-p and min-p."""
        ids = rules.target_ids
        self._target_ids = None if ids is None else torch.from_numpy(ids).to(settings.device)
        self._num_noisy = rules.num_ids if ids is None or rules.is_drawn else int(ids[-1]) + 1

    @staticmethod
    def way_of(work: ChainWork) -> tuple[bool, bool]:
        """Return `is_greedy` and `has_cuts` of what is to be drafted."""
        is_greedy = not any(t > 0 for t in work.temperatures)
        return is_greedy, (bool(work.cuts) or work.rules.is_drawn) and not is_greedy

    def numbers(self, work: ChainWork) -> Int64s:
        """Return what goes to `settings`."""
        count = len(work.temperatures)
        settings = np.zeros(self.settings.shape, np.float32)
        if not self.is_greedy:
            # A positive temperature that float32 rounds to 0 is still not greedy.
            settings[0, :count] = [max(t, _COLDEST) if t > 0 else 0.0 for t in work.temperatures]
        if self._has_cuts:
            most = self.rules.num_ids if self.rules.is_drawn else _MOST_KEPT
            cuts = work.cuts or [(0, 1.0, 0.0)] * count
            settings[1:, :count] = np.array([(k or most, p, floor) for k, p, floor in cuts], np.float32).T
        return settings.reshape(-1).view(np.int64)

    def choose(self, scores: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places of candidates `[T, S]`, first those to continue with, in the scores of a step, and distributions.

        Both `scores` and distributions are `[T, num_ids]`.
        """
        best, is_drawn = _highest(scores, self.rules.siblings), self.rules.is_drawn
        if self.is_greedy:
            return best, scores.softmax(-1) if self.rules.threshold else scores
        law = self._exact_law(scores) if is_drawn else self.law(scores, self.settings)
        seeds, positions, samples = (key[: len(scores)] for key in self._keys)
        keys = NoiseKeys(seeds, positions + (0 if is_drawn else step), samples)
        word = node_word(Stream.DRAFT, step) if is_drawn else node_word(Stream.TARGET)
        # The least of exponentials divided by probabilities is a draw from these (a race); `strict` draws the same way.
        noise = self.exponentials(keys, word)
        drawn = _highest(-(noise / law.double()), self.rules.siblings)
        return torch.where(self.settings[0, :, None] > 0, drawn, best), law

    def named(self, index: torch.Tensor) -> torch.Tensor:
        """Return the target's ids of indices into the logits."""
        return index if self._target_ids is None else self._target_ids[index]

    def law(self, scores: torch.Tensor, settings: torch.Tensor) -> torch.Tensor:
        """Return the distributions `[R, num_ids]` of rows with `settings [4, R]`; greedy rows have some distribution."""
        temperatures = settings[0, :, None]
        law = (
            (scores - scores.amax(-1, keepdim=True)) / torch.where(temperatures > 0, temperatures, 1.0)
        ).softmax(-1)
        return self._cut(law, settings) if self._has_cuts else law

    def exponentials(self, keys: NoiseKeys, word: int) -> torch.Tensor:
        """Return unit exponentials `[R, num_ids]`, float64, for rows with these keys."""
        noise = -torch.log1p(-uniforms(keys, torch.full_like(keys.positions, word), self._num_noisy))
        if self._target_ids is not None and not self.rules.is_drawn:
            return noise[:, self._target_ids]
        return noise

    def _exact_law(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the distributions as the target's are made, with all that the cuts keep, summing to 1."""
        temperatures, top_k, top_p, min_p = self.settings
        cuts = Cuts(temperatures, min_p, top_k.long(), top_p)
        with torch.cuda.device(scores.device) if scores.is_cuda else nullcontext():
            return process_logits(scores, cuts=cuts).softmax(-1)

    def _cut(self, law: torch.Tensor, settings: torch.Tensor) -> torch.Tensor:
        """Return distributions without what the cuts leave out, and of any row only the best ids."""
        top_k, top_p, min_p = settings[1:, :, None]
        best = law.topk(min(_MOST_KEPT, law.shape[1])).values
        ranks = torch.arange(best.shape[1], device=best.device)
        keep = (best.cumsum(-1) - best < top_p) & (ranks < top_k) & (best >= min_p * best[:, :1])
        least = torch.where(keep, best, torch.inf).amin(-1, keepdim=True)
        return torch.where(law >= least, law, 0.0)


def _highest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places `[T, count]` of the highest scores of each row, highest first."""
    return scores.argmax(-1, keepdim=True) if count == 1 else scores.topk(count, -1).indices


class ChosenTokens:
    """The tokens of drafts while they are chosen, and what is kept of each.

    Args:
        choice: chooses them.
    """

    def __init__(self, choice: StaticChoice) -> None:
        self._choice = choice
        self._ids: list[torch.Tensor] = []
        self._confidences: list[torch.Tensor] = []
        self._laws: list[torch.Tensor] = []

    def add(self, logits: torch.Tensor) -> torch.Tensor:
        """Choose the next token of each row from `logits [T, V]`; returns the target's ids `[T]`."""
        rules = self._choice.rules
        index, law = self._choice.choose(logits[:, : rules.num_ids].float(), len(self._ids))
        self._ids.append(self._choice.named(index))
        if rules.threshold:
            self._confidences.append(law.gather(1, index))
        if rules.is_drawn and not self._choice.is_greedy:
            self._laws.append(law)
        return self._ids[-1][:, 0]

    def outputs(self) -> Tensors:
        """Return ids `[T, K * S]`, confidences `[T, K * S]` or of width 0, and q `[T, K + 1, num_ids]` or of width 0; of trees
        parents `[T, K * S]`.

        The last row of q, from which nothing was drawn, is there because drafts have one.
        """
        ids, count = torch.cat(self._ids, 1), self._choice.rules.siblings
        none = torch.empty((len(ids), 0), device=ids.device)
        confidences = torch.cat(self._confidences, 1) if self._confidences else none
        if count > 1:
            depths = torch.arange(ids.shape[1], device=ids.device) // count
            parents = torch.where(depths > 0, (depths - 1) * count, -1)
            return ids, confidences, parents.expand(len(ids), -1).contiguous()
        return (
            ids,
            confidences,
            torch.stack([*self._laws, self._laws[-1]], 1) if self._laws else none[:, None],
        )
