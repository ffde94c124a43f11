"""One table of a comparison: variants at one dtype and batch size, and which is compared with which."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from common.contestant import Contestants
from common.gate import GapOf, Gate, compare
from common.rounds import Measurement, joined, measure
from common.stats import PairedRatio, paired_ratio
from common.variant import Variant

MAX_IDLE_SHARE = 0.02
"""A waiting engine that uses more of a core than this has disturbed the others."""


@dataclass(frozen=True)
class Case:
    """The variants and prompts of one case."""

    dtype: str
    batch_size: int
    prompts: list[list[int]]
    pairs: tuple[tuple[Variant, Variant], ...]
    """Pairs of ours and the peer's, which are compared as ratios."""

    @property
    def variants(self) -> list[Variant]:
        """All variants, each once, in the order in which they are named."""
        return list(dict.fromkeys(variant for pair in self.pairs for variant in pair))


@dataclass(frozen=True)
class Row:
    """One comparison. `ratio` is None if the gate failed."""

    ours: Variant
    peer: Variant
    batch_size: int
    gate: Gate
    ratio: PairedRatio | None
    ours_tokens_per_s: float
    peer_tokens_per_s: float


@dataclass(frozen=True)
class CaseResult:
    """The results of a case."""

    case: Case
    rows: list[Row]
    measurements: dict[str, Measurement]
    workers: dict[str, dict[str, object]]
    """Each contestant's `Ready` message."""
    warnings: list[str]


@dataclass(frozen=True)
class Started:
    """The measurements of a case in one start of its engines."""

    measurements: dict[str, Measurement]
    workers: dict[str, dict[str, object]]
    """Each contestant's `Ready` message."""


def start_case(case: Case, pool: Contestants, max_tokens: int, num_rounds: int) -> Started:
    """Measure all variants of a case interleaved.

    Args:
        case: what to run.
        pool: where contestants come from.
        max_tokens: new tokens per prompt.
        num_rounds: paired rounds.
    """
    processes = {variant.name: pool.get(variant) for variant in case.variants}
    done = measure(processes, case.prompts, case.batch_size, max_tokens, num_rounds)
    return Started(done, {name: dict(process.ready) for name, process in processes.items()})


def result_of(case: Case, starts: Sequence[Started], gap_of: GapOf) -> CaseResult:
    """Compare the pairs of a case.

    Args:
        case: what was run.
        starts: the measurements, one entry for each start of the engines.
        gap_of: distinguishes ties from errors in float32.
    """
    done = joined([start.measurements for start in starts])
    rows = [_row(case, ours, peer, done, gap_of) for ours, peer in case.pairs]
    return CaseResult(case, rows, done, starts[0].workers, _warnings(done))


def run_case(case: Case, pool: Contestants, max_tokens: int, num_rounds: int, gap_of: GapOf) -> CaseResult:
    """Measure a case in one start and compare its pairs; see `start_case` and `result_of`."""
    return result_of(case, [start_case(case, pool, max_tokens, num_rounds)], gap_of)


def _row(case: Case, ours: Variant, peer: Variant, done: dict[str, Measurement], gap_of: GapOf) -> Row:
    left, right = done[ours.name], done[peer.name]
    is_required = case.dtype in ("float32", "float64") and ours.weights == peer.weights
    gate = compare(case.prompts, left.token_ids, right.token_ids, gap_of if is_required else None)
    return Row(
        ours=ours,
        peer=peer,
        batch_size=case.batch_size,
        gate=gate,
        ratio=paired_ratio(right.wall_s, left.wall_s) if gate.is_passed else None,
        ours_tokens_per_s=left.num_tokens / statistics.median(left.wall_s),
        peer_tokens_per_s=right.num_tokens / statistics.median(right.wall_s),
    )


def _warnings(done: dict[str, Measurement]) -> list[str]:
    found = []
    for item in done.values():
        share = item.idle_cpu_s / item.idle_s if item.idle_s else 0.0
        if share > MAX_IDLE_SHARE:
            found.append(f"{item.name} used {share:.0%} of a core while others were measured")
        if not item.is_repeatable:
            found.append(f"{item.name} did not give the same tokens in every round")
    return found


def row_as_dict(row: Row) -> dict[str, object]:
    """Return a row as it is written to JSON."""
    return {
        "ours": row.ours.name,
        "peer": row.peer.name,
        "dtype": row.ours.dtype,
        "batch_size": row.batch_size,
        "ratio": None if row.ratio is None else asdict(row.ratio),
        "ours_tokens_per_s": row.ours_tokens_per_s,
        "peer_tokens_per_s": row.peer_tokens_per_s,
        "num_prompts": row.gate.num_prompts,
        "num_identical": row.gate.num_identical,
        "is_gate_required": row.gate.is_required,
        "is_gate_passed": row.gate.is_passed,
        "divergences": [asdict(item) for item in row.gate.divergences],
    }
