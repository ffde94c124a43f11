"""The best drafts of a step: the most expected tokens per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from specdec.adaptive import StepCosts
from specdec_plugin_composite.choose.options import Option, Pick, Plan

_ROUNDS = 4
_LEAST_GAIN = 1.02
"""Throughput of drafts, as a multiple of that without, from which on they are made."""
_RISE = 1 + 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def best_plan(
    options: Mapping[int, Sequence[Option]], size: int, costs: StepCosts, members: Mapping[int, float]
) -> Plan:
    """Return the plan with the most expected tokens per second.

    One member that runs a model drafts in a step, or none. The ratio of tokens and seconds is maximised by Dinkelbach's
    method: at a given price of a second in tokens each row takes its best, and the ratio of that is the next price.

    Args:
        options: by row that wants a draft.
        size: number of rows.
        costs: measured durations.
        members: those that run a model, and may draft, each with the seconds that it takes beyond its draft.
    """
    rest = costs.rest(size)
    plain = rest.at(0)
    if not plain:
        return Plan()
    rows = list(options.values())
    longest = max((len(option.gains) for row in rows for option in row), default=0)
    more = (rest.along(size * np.arange(longest + 1)) - plain) / size
    offers, forms = _Offers(rows, longest), _Forms(rows, costs, members)
    rate = size / plain
    picks, seconds = list[Pick | None](), plain
    for _ in range(_ROUNDS):
        price = rate * more
        offers.price(price)
        is_better = forms.gains - price[forms.nodes] > offers.values
        gains = np.where(is_better, forms.gains, offers.gains)
        nodes = np.where(is_better, forms.nodes, offers.nodes)
        tokens = size + gains.sum(axis=1)
        durations = plain + more[nodes].sum(axis=1) + forms.seconds * is_better.any(axis=1)
        best = int((tokens / durations).argmax())
        if tokens[best] / durations[best] <= rate * _RISE:
            break
        rate, seconds = tokens[best] / durations[best], float(durations[best])
        made = (
            offers.chosen[row] if not better else forms.options[best][row]
            for row, better in enumerate(is_better[best])
        )
        picks = [
            None if option is None else Pick(option, count)
            for option, count in zip(made, nodes[best].tolist(), strict=True)
        ]
    if rate < _LEAST_GAIN * size / plain:
        return Plan(tokens=size, seconds=plain)
    return Plan(
        {row: pick for row, pick in zip(options, picks, strict=True) if pick is not None},
        rate * seconds,
        seconds,
    )


class _Offers:
    """Drafts that are made already: the best of each row at a price.

    Args:
        rows: `[R]` the options of each row.
        longest: N, most nodes.
    """

    def __init__(self, rows: Sequence[Sequence[Option]], longest: int) -> None:
        self._made = [
            (row, option) for row, own in enumerate(rows) for option in own if option.offer is not None
        ]
        self._table = np.full((len(self._made), longest + 1), -np.inf)
        for place, (_, option) in enumerate(self._made):
            first = option.shortest
            self._table[place, first : len(option.gains) + 1] = option.gains[first - 1 :]
        count = len(rows)
        self.values, self.gains = np.zeros(count), np.zeros(count)
        """`[R]` tokens that the best of each row is expected to bring, with and without the price of its nodes; 0 for none."""
        self.nodes: Ints = np.zeros(count, dtype=np.int64)
        self.chosen: list[Option | None] = [None] * count

    def price(self, price: Floats) -> None:
        """Choose the best of each row where verifying 0 to N nodes costs `price [N + 1]` tokens."""
        self.values[:] = self.gains[:] = self.nodes[:] = 0
        self.chosen = [None] * len(self.chosen)
        values = self._table - price
        counts = values.argmax(axis=1).tolist() if self._made else ()
        for place, ((row, option), count) in enumerate(zip(self._made, counts, strict=True)):
            if values[place, count] > self.values[row]:
                self.values[row], self.gains[row] = values[place, count], option.gains[count - 1]
                self.nodes[row], self.chosen[row] = count, option


class _Forms:
    """All ways to draft with at most one member that runs a model: which one, to which depth. The first way is with none.

    Args:
        rows: `[R]` the options of each row.
        costs: measured durations of drafts.
        members: as for `best_plan`.
    """

    def __init__(
        self, rows: Sequence[Sequence[Option]], costs: StepCosts, members: Mapping[int, float]
    ) -> None:
        none: list[Option | None] = [None] * len(rows)
        self.options: list[list[Option | None]] = [none]
        """`[F][R]` the draft of each row."""
        seconds, tables, counts = (
            [0.0],
            [np.zeros((1, len(rows)))],
            [np.zeros((1, len(rows)), dtype=np.int64)],
        )
        for number, more in members.items():
            drafting = costs.drafting(number)
            own = [next((o for o in row if o.member == number and o.offer is None), None) for row in rows]
            deepest = max((len(option.gains) for option in own if option is not None), default=0)
            if not drafting.is_known or not deepest:
                continue
            shortest = 1 if all(option is None or option.can_shorten for option in own) else deepest
            depths = np.arange(shortest, deepest + 1)
            table, nodes = (
                np.zeros((len(depths), len(rows))),
                np.zeros((len(depths), len(rows)), dtype=np.int64),
            )
            for row, option in enumerate(own):
                if option is not None:
                    nodes[:, row] = np.minimum(depths, len(option.gains))
                    table[:, row] = np.asarray(option.gains)[nodes[:, row] - 1]
            self.options += [own] * len(depths)
            seconds += (drafting.along(depths) + more).tolist()
            tables.append(table)
            counts.append(nodes)
        self.seconds: Floats = np.array(seconds)
        """`[F]` of drafting."""
        self.gains: Floats = np.concatenate(tables)
        """`[F, R]` expected accepted tokens."""
        self.nodes: Ints = np.concatenate(counts)
        """`[F, R]` number of nodes."""
