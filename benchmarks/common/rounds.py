"""Interleaved measurement: in every round each variant does the same work once."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.contestant import Contestant
from common.protocol import Counters

SETTLE_S = 0.05
"""Pause between variants, in which spinning threads of the previous one go to sleep."""


@dataclass
class Measurement:
    """The measurements of one variant."""

    name: str
    token_ids: list[list[int]]
    """Tokens of the warm-up, one row per prompt."""
    wall_s: list[float] = field(default_factory=list)
    """One number per round."""
    is_repeatable: bool = True
    """Whether every round gave the tokens of the warm-up."""
    idle_s: float = 0.0
    """Time during which others were measured."""
    idle_cpu_s: float = 0.0
    """Processor time it used then; should be close to zero."""
    counters: Counters = field(default_factory=dict)
    """Its draft counters in the warm-up."""

    @property
    def num_tokens(self) -> int:
        """New tokens of one round."""
        return sum(len(row) for row in self.token_ids)


def measure(
    processes: Mapping[str, Contestant],
    prompts: list[list[int]],
    batch_size: int,
    max_tokens: int,
    num_rounds: int,
) -> dict[str, Measurement]:
    """Run a warm-up of all prompts and then the rounds; the order of the variants changes every round.

    Args:
        processes: loaded contestants by name.
        prompts: the work of one round.
        batch_size: prompts per batch; batches run one after another.
        max_tokens: new tokens per prompt.
        num_rounds: number of rounds.
    """
    done: dict[str, Measurement] = {}
    for name, process in processes.items():
        before = process.generate(prompts[:1], 1)["counters"]
        token_ids, _, after = _generate(process, prompts, batch_size, max_tokens)
        counted = {key: value - before.get(key, 0) for key, value in after.items()}
        done[name] = Measurement(name, token_ids, counters=counted)
    for index in range(num_rounds):
        print(f"round {index + 1} of {num_rounds}", file=sys.stderr, flush=True)
        for name in _order(list(processes), index):
            others = {other: process for other, process in processes.items() if other != name}
            time.sleep(SETTLE_S)
            used = {other: process.cpu_seconds() for other, process in others.items()}
            start = time.perf_counter()
            token_ids, wall_s, _ = _generate(processes[name], prompts, batch_size, max_tokens)
            elapsed = time.perf_counter() - start
            for other, process in others.items():
                done[other].idle_s += elapsed
                done[other].idle_cpu_s += process.cpu_seconds() - used[other]
            done[name].wall_s.append(wall_s)
            done[name].is_repeatable &= token_ids == done[name].token_ids
    return done


def joined(starts: Sequence[Mapping[str, Measurement]]) -> dict[str, Measurement]:
    """Merge each variant's measurements of several engine starts into one, with the rounds in order."""
    first, *others = starts
    done = {name: replace(item, wall_s=list(item.wall_s)) for name, item in first.items()}
    for start in others:
        for name, item in start.items():
            total = done[name]
            total.wall_s += item.wall_s
            total.is_repeatable &= item.is_repeatable and item.token_ids == total.token_ids
            total.idle_s += item.idle_s
            total.idle_cpu_s += item.idle_cpu_s
    return done


def _order(names: Sequence[str], index: int) -> list[str]:
    """Return the names alternately forwards and backwards, rotated by one more every second round."""
    shift = index // 2 % len(names)
    turned = [*names[shift:], *names[:shift]]
    return turned[::-1] if index % 2 else turned


def _generate(
    process: Contestant, prompts: list[list[int]], batch_size: int, max_tokens: int
) -> tuple[list[list[int]], float, Counters]:
    token_ids: list[list[int]] = []
    wall_s = 0.0
    counters: Counters = {}
    for first in range(0, len(prompts), batch_size):
        reply = process.generate(prompts[first : first + batch_size], max_tokens)
        token_ids += reply["token_ids"]
        wall_s += reply["wall_s"]
        counters = reply["counters"]
    return token_ids, wall_s, counters
