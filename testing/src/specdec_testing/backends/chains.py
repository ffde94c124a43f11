"""Draft loops of forms, token by token beside passes."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import NoiseKeys
from specdec.noise import Stream, exponentials, node_word
from specdec_runtime.interfaces import ChainRules, Chains, ChainWork, ForwardOutput, NewRows
from specdec_testing.backends.suite import BackendSuite
from specdec_testing.support.fast_runner import MAX_CONTEXT, FastRunner
from specdec_testing.support.packed import RequestRows, packed
from specdec_testing.support.texts import repetitive
from specdec_testing.support.verdicts import broken, described, not_applicable

_LENGTHS = (9, 4, 12)
_TEMPERATURES = (0.7, 0.0, 1.3)
_NUM_STEPS = 5
_KEYS = NoiseKeys(np.array([11, -5, 2**62]), np.arange(3), np.array(_LENGTHS))
_PROBS = 1e-4
"""The largest difference of a probability that is rounding."""


class ChainTests(BackendSuite):
    """Draft loops choose what a pass and a choice per token give."""

    def test_chains_agree(self) -> None:
        """A draft loop gives the tokens that a pass and a choice per token give: greedy, and with the noise of `strict`.

        To fix: choose by `argmin(e / p)` with the exponentials of `specdec.noise`, keyed by seed, position + step and sample;
        at temperature 0 by argmax.
        """
        self._check(is_drawn=False)

    def test_drawn_chains_agree(self) -> None:
        """With `ChainRules.is_drawn` tokens come from the draft's own noise, and `draft_probs` are what they were drawn from.

        To fix: the word of step i is `node_word(Stream.DRAFT, i)`, the position that of the first token.
        """
        self._check(is_drawn=True)

    def _check(self, *, is_drawn: bool) -> None:
        runner = self._runner(is_draft=True)
        chain = runner.fast.chain
        if chain is None:
            not_applicable("its form of this model has no chain")
        num_rows = min(len(_LENGTHS), chain.max_rows)
        for num_ids in (runner.vocab_size, runner.vocab_size - 3):
            rules = ChainRules(num_ids, is_drawn=is_drawn)
            tokens, probs = _expected(runner, num_rows, rules)
            what = f"{num_rows} requests, {num_ids} ids"
            _compare(f"draft: {what}", self._drafted(runner, num_rows, rules), tokens, probs, rules)
            if sum(_LENGTHS[:num_rows]) <= chain.max_new_rows:
                got = self._drafted(runner, num_rows, rules, is_after=True)
                _compare(f"draft_after: {what}", got, tokens, probs, rules)

    def _drafted(
        self, runner: FastRunner, num_rows: int, rules: ChainRules, *, is_after: bool = False
    ) -> Chains:
        prompts = _prompts(runner, num_rows)
        cached = [0] * num_rows if is_after else [prompt.end for prompt in prompts]
        work = ChainWork(
            [prompt.first_slot for prompt in prompts],
            cached,
            _NUM_STEPS,
            _TEMPERATURES[:num_rows],
            NoiseKeys(_KEYS.seeds[:num_rows], _KEYS.samples[:num_rows], _KEYS.positions[:num_rows]),
            rules,
        )
        try:
            if is_after:
                ids = np.array([token for prompt in prompts for token in prompt.token_ids])
                return runner.fast.draft_after(NewRows(ids, [prompt.end for prompt in prompts]), work)
            last = np.cumsum([prompt.end for prompt in prompts]) - 1
            output = runner.fast.forward(packed(prompts, runner.device, last.tolist()))
            return runner.fast.draft_chain(ForwardOutput(output.logits), work)
        except Exception as error:
            broken(f"the draft loop raised {described(error)}")


def _prompts(runner: FastRunner, num_rows: int) -> list[RequestRows]:
    texts = [repetitive(runner.vocab_size, 3 + row, _LENGTHS[row]) for row in range(num_rows)]
    return [RequestRows(row * MAX_CONTEXT, 0, tuple(text)) for row, text in enumerate(texts)]


def _expected(runner: FastRunner, num_rows: int, rules: ChainRules) -> tuple[list[list[int]], torch.Tensor]:
    """Return the tokens `[B][K]`, and the distributions `[B, K, num_ids]`, of one pass per token by the own forward."""
    tokens, probs = [], []
    for row, prompt in enumerate(_prompts(runner, num_rows)):
        logits = runner.plain.forward(packed([prompt], runner.device)).logits[-1]
        chosen: list[int] = []
        for step in range(_NUM_STEPS):
            temperature = _TEMPERATURES[row]
            scores = logits[: rules.num_ids].double().cpu()
            p = torch.softmax(scores / temperature, -1) if temperature else _one_hot(scores)
            probs.append(p)
            chosen.append(_chosen(p, row, step, is_drawn=rules.is_drawn))
            following = RequestRows(prompt.first_slot, prompt.end + step, (chosen[-1],))
            logits = runner.plain.forward(packed([following], runner.device)).logits[-1]
        tokens.append(chosen)
    return tokens, torch.stack(probs).view(num_rows, _NUM_STEPS, -1)


def _one_hot(scores: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(scores.argmax(), len(scores)).double()


def _chosen(probs: torch.Tensor, row: int, step: int, *, is_drawn: bool) -> int:
    word = node_word(Stream.DRAFT, step) if is_drawn else node_word(Stream.TARGET)
    position = int(_KEYS.positions[row]) + (0 if is_drawn else step)
    seed, at, sample, key = (
        torch.tensor([number]) for number in (int(_KEYS.seeds[row]), position, int(_KEYS.samples[row]), word)
    )
    noise = exponentials(seed, at, sample, key, len(probs))
    return int((noise[0] / probs).argmin())


def _compare(what: str, got: Chains, tokens: list[list[int]], probs: torch.Tensor, rules: ChainRules) -> None:
    drafted = got.token_ids[: len(tokens)].tolist()
    if drafted != tokens:
        broken(f"{what}: tokens {drafted}, where passes give {tokens}")
    if not rules.is_drawn:
        return
    if got.draft_probs.shape != probs.shape:
        broken(f"{what}: draft_probs {tuple(got.draft_probs.shape)}, not {tuple(probs.shape)}")
    drawn = [row for row in range(len(tokens)) if _TEMPERATURES[row] > 0]
    off = float((got.draft_probs.double().cpu() - probs)[drawn].abs().max())
    if not off <= _PROBS:
        broken(f"{what}: draft_probs are {off:.1e} off the distributions that the tokens are drawn from")
