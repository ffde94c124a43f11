"""The distribution of what a verifier emits, exactly: over all drafts, all decisions and all tokens after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from lawcheck.world import Drafts, World, ancestors
from specdec.samplers.scheme import Rule, Scheme

Decision = Callable[[np.ndarray, list[int]], np.ndarray]
"""Takes thresholds `[B, N]` and parents; returns `[B, N + 1]`: chances to stop at each node, the root first."""


def by_children(thresholds: np.ndarray, parents: list[int]) -> np.ndarray:
    """First child that passes, from there the first child that passes, and so on."""
    count, width = thresholds.shape
    reach = np.ones((count, width + 1))
    stop = np.ones((count, width + 1))  # chance that no child of a reached node passes
    for node, parent in enumerate(parents):
        reach[:, node + 1] = reach[:, parent + 1] * stop[:, parent + 1] * thresholds[:, node]
        stop[:, parent + 1] *= 1 - thresholds[:, node]
    return reach * stop


def post_order(parents: list[int]) -> list[int]:
    """Return the nodes in post-order, by plain recursion."""

    def visit(node: int) -> list[int]:
        below = [n for child, parent in enumerate(parents) if parent == node for n in visit(child)]
        return [*below, node]

    return visit(-1)[:-1]


def in_order(order: list[int], thresholds: np.ndarray) -> np.ndarray:
    """First node that passes in a given order, else the root."""
    count, width = thresholds.shape
    chances = np.zeros((count, width + 1))
    left = np.ones(count)
    for node in order:
        chances[:, node + 1] = left * thresholds[:, node]
        left = left * (1 - thresholds[:, node])
    chances[:, 0] = left
    return chances


def by_post_order(thresholds: np.ndarray, parents: list[int]) -> np.ndarray:
    """First node that passes, children before parents."""
    return in_order(post_order(parents), thresholds)


@dataclass(frozen=True)
class Outcome:
    """What comes of each draft."""

    output: np.ndarray
    """`[B, V ** L]`: distribution of the first L tokens, given the draft; tokens after the emitted ones follow p."""
    num_accepted: np.ndarray
    """`[B]`: expected accepted tokens."""

    def mean_output(self, drafts: Drafts) -> np.ndarray:
        """Return the distribution of the output over drafts, `[V ** L]`."""
        return drafts.chances @ self.output

    def mean_accepted(self, drafts: Drafts) -> float:
        """Return the accepted tokens over drafts."""
        return float(drafts.chances @ self.num_accepted)


def outcome(
    law: Scheme, world: World, drafts: Drafts, length: int, decision: Decision | None = None
) -> Outcome:
    """Follow every decision and every token to texts of `length` tokens; a given `decision` overrides that of `law`."""
    size, (count, width) = world.vocab_size, drafts.tokens.shape
    decision = decision or {Rule.FIRST_CHILD: by_children, Rule.POST_ORDER: by_post_order}[law.rule]
    chances = decision(law.thresholds.double().numpy(), drafts.parents)
    assert (chances > -1e-15).all()
    np.testing.assert_allclose(chances.sum(-1), 1.0, rtol=0, atol=1e-12)
    texts = [np.zeros((count, size**n)) for n in range(length + 1)]
    num_accepted = np.zeros(count)
    for node in range(-1, width):
        path = ancestors(drafts.parents, node)
        is_there = np.array(node < drafts.lengths)
        weights = law.emission(torch.where(torch.from_numpy(is_there), node, -1)).double().numpy()
        assert (weights >= 0).all()
        assert weights.shape[0] == count
        weights = np.pad(weights, ((0, 0), (0, size - weights.shape[1])))
        emission = weights / weights.sum(-1, keepdims=True)
        assert chances[~is_there, node + 1].sum() == 0.0
        prefix = np.zeros(count, int)
        for step in path:
            prefix = prefix * size + np.maximum(drafts.tokens[:, step], 0)
        columns = prefix[:, None] * size + np.arange(size)
        part = chances[:, node + 1, None] * emission
        texts[len(path) + 1][np.arange(count)[:, None], columns] += part
        num_accepted += len(path) * chances[:, node + 1]
    for n in range(1, length):
        table = world.p[n].reshape(size**n, size)
        texts[n + 1] += (texts[n][:, :, None] * table).reshape(count, -1)
    return Outcome(texts[length], num_accepted)


def bias(outcome: Outcome, world: World, drafts: Drafts, length: int) -> float:
    """Return the largest error of any text's probability, over drafts made with their chances."""
    return float(np.abs(outcome.mean_output(drafts) - world.exact(length)).max())


def worst_bias(outcome: Outcome, world: World, length: int) -> float:
    """Return the largest error for any single draft, as has to hold for drafts that are not drawn."""
    return float(np.abs(outcome.output - world.exact(length)).max())
