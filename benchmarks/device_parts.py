"""The parts of a visit that measure a device, in one process that shares a model: benchmarks/visit.py runs it.

    python benchmarks/device_parts.py --out FOLDER --commit NAME plain profiler sampled ... [--quick]

A part writes what it has so far to FOLDER/PART.partial.json, and FOLDER/PART.json when it is done.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import torch
from common.provenance import load_average, provenance
from device.bandwidth import Bandwidth, bandwidth_of
from device.counting import counting_model
from device.head import write_random_head
from device.kernel_part import run_kernels
from device.plan import FULL, QUICK, Plan
from device.point import Point
from device.profiled import profiled
from device.sizes import large_sizes, small_sizes
from device.steady import SteadyEngine
from device.tuning import tuned
from transformers import PreTrainedModel

_K = 3
_RATES = [0.7, 0.5, 0.35]
"""Of drafted tokens that `synthetic` accepts, by position."""
_SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
_PROFILED_STEPS = 5
_DISTRIBUTIONS = ("specdec-core", "specdec-kernels", "torch", "transformers", "triton", "numba")
_ROOT = Path(__file__).resolve().parents[1]

Row = dict[str, Any]
Prompts = list[list[int]]


class Visit:
    """What parts share: the model, and the engine of the last one.

    Args:
        plan: sizes.
        out: folder of results.
    """

    def __init__(self, plan: Plan, out: Path) -> None:
        self.plan, self.out = plan, out
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype: torch.dtype = getattr(torch, plan.dtype)
        self._engine: tuple[str, SteadyEngine] | None = None

    @cached_property
    def model(self) -> PreTrainedModel:
        """The target."""
        return counting_model(self.plan.target, self.device, self.dtype)

    @cached_property
    def bandwidth(self) -> Bandwidth | None:
        """That of the device."""
        return bandwidth_of(self.device)

    def engine(self, config: Row | None = None, **options: Any) -> SteadyEngine:
        """Return the engine of a configuration, the last part's if it is the same."""
        _ = self.bandwidth  # measured while there is room
        key = json.dumps([config, options])
        if self._engine is None or self._engine[0] != key:
            self.close()
            most = {"max_model_len": self.plan.longest, "max_num_seqs": max(self.plan.batch_sizes)}
            self._engine = key, SteadyEngine(self.model, config, **most, **options)
        return self._engine[1]

    def close(self) -> None:
        """Drop the engine, whose cache fills the device."""
        if self._engine is not None:
            self._engine[1].close()
        self._engine = None

    def prompts(self, count: int, num_tokens: int, seed: int = 0) -> Prompts:
        """Return distinct prompts of random tokens."""
        chance, size = Random(f"{count} {num_tokens} {seed}"), self.plan.target.vocab_size
        return [[chance.randrange(size) for _ in range(num_tokens)] for _ in range(count)]

    def counting_prompts(self, count: int) -> Prompts:
        """Return distinct prompts that count and then begin anew, so that the answer is found in them."""
        size, once = self.plan.target.vocab_size, self.plan.copied - 3
        firsts = [index * (size // count) for index in range(count)]
        return [[(first + place) % size for place in (*range(once), 0, 1, 2)] for first in firsts]

    def point(
        self,
        name: str,
        engine: SteadyEngine,
        prompts: Prompts,
        k: int = 0,
        head_bytes: float = 0.0,
        **params: Any,
    ) -> Row:
        """Measure one batch."""
        run = engine.run(prompts, self.plan.num_steps, **params)
        context = len(prompts[0])
        num_bytes = self._pass_bytes + len(prompts) * (context + run.num_generated) * self._token_bytes
        return Point(
            name=name,
            batch_size=len(prompts),
            context=context,
            k=k,
            prompts_s=run.prompts_s,
            step_ms=run.step_ms,
            forward_ms=run.forward_ms,
            tokens_per_s=run.tokens_per_s,
            mean_acceptance_length=run.mean_acceptance_length,
            num_bytes=num_bytes,
            head_bytes=head_bytes,
            bound_ms=None if self.bandwidth is None else self.bandwidth.ms(num_bytes),
            head_bound_ms=None if self.bandwidth is None else self.bandwidth.ms(head_bytes),
        ).as_dict()

    @cached_property
    def _pass_bytes(self) -> int:
        """Bytes of weights that a pass reads: all but the embedding."""
        embedding = self.model.get_parameter("model.embed_tokens.weight")
        return sum(weight.nbytes for weight in self.model.parameters()) - embedding.nbytes

    @property
    def _token_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        shape = self.plan.target
        head_dim = shape.hidden_size // shape.num_heads
        return 2 * shape.num_layers * shape.num_kv_heads * head_dim * self.dtype.itemsize


def plain(visit: Visit) -> Iterator[Row]:
    """Plain decoding: prompts and steps by batch size and context."""
    for context, batch_sizes in visit.plan.plain.items():
        for batch_size in batch_sizes:
            yield visit.point("plain", visit.engine(), visit.prompts(batch_size, context))


def profiler(visit: Visit) -> Iterator[Row]:
    """What five plain steps ask of the device."""
    for batch_size, context in visit.plan.profiled:
        found: Row = {}

        def watch(steps: Callable[[], object], found: Row = found) -> None:
            found |= profiled(steps, _PROFILED_STEPS, is_cuda=visit.device.type == "cuda")

        visit.engine().watched(visit.prompts(batch_size, context), _PROFILED_STEPS, watch)
        yield {"batch_size": batch_size, "context": context, **found}


def sampled(visit: Visit) -> Iterator[Row]:
    """Plain decoding at temperature 0.8 with top_p and top_k."""
    for batch_size in visit.plan.batch_sizes:
        prompts = visit.prompts(batch_size, visit.plan.short)
        yield visit.point("sampled", visit.engine(), prompts, **_SAMPLED)


def eagle3(visit: Visit) -> Iterator[Row]:
    """A head of EAGLE-3's shape, of whose drafts a fixed share is accepted."""
    plan, folder = visit.plan, visit.out / "eagle3"
    size = write_random_head(plan.target, plan.head_vocab_size, visit.device, visit.dtype, folder)
    config = {
        "method": "eagle3", "model": str(folder), "num_speculative_tokens": _K, "adaptive": False,
        "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": _RATES, "on_proposer_error": "raise",
    }  # fmt: skip
    for batch_size in plan.batch_sizes:
        prompts = visit.prompts(batch_size, plan.short)
        yield visit.point("eagle3", visit.engine(config), prompts, _K, _K * size)


def methods(visit: Visit) -> Iterator[Row]:
    """`ngram` on text that it finds, `self`, and plain decoding with `deterministic`."""
    plan = visit.plan
    few = plan.batch_sizes[:2]
    for method in ("ngram", "self"):
        config = {
            "method": method,
            "num_speculative_tokens": _K,
            "adaptive": False,
            "on_proposer_error": "raise",
        }
        for batch_size in few:
            prompts = visit.counting_prompts(batch_size)
            yield visit.point(method, visit.engine(config), prompts, _K)
    for batch_size in plan.batch_sizes:
        prompts = visit.prompts(batch_size, plan.short)
        yield visit.point("deterministic", visit.engine(deterministic=True), prompts)


def arrivals(visit: Visit) -> Iterator[Row]:
    """Requests that arrive by chance: seconds to the first token, and between those that follow."""
    num_tokens, num_new = visit.plan.arrival_tokens
    for rate in visit.plan.rates:
        chance = Random(0)
        count = max(4, round(rate * visit.plan.arrival_s))
        due = list(accumulate(chance.expovariate(rate) for _ in range(count)))
        started = perf_counter()
        seen = visit.engine().arrive(visit.prompts(count, num_tokens), due, num_new)
        seconds = perf_counter() - started
        gaps = [1e3 * (after - before) for times in seen for before, after in pairwise(times)]
        firsts = [1e3 * times[0] for times in seen]
        yield {
            "rate": rate,
            "num_requests": count,
            "tokens_per_s": count * num_new / seconds,
            "first_token_ms": {"median": median(firsts), "p99": _p99(firsts)},
            "next_token_ms": {"median": median(gaps), "p99": _p99(gaps)},
        }


def tuning(visit: Visit) -> Iterator[Row]:
    """Every kernel beside torch, then launch configurations of attention and of invariant products."""
    visit.close()
    is_full = visit.plan is FULL
    sizes = large_sizes(visit.device) if is_full else small_sizes(visit.device)
    num_calls = 20 if is_full else 1
    kernels = run_kernels(sizes, visit.bandwidth, num_calls=num_calls, seconds=15.0)
    yield {"kernels": kernels.as_dict()}
    problems = [
        (batch, 0, context) for context, batches in visit.plan.plain.items() for batch in batches[::2]
    ]
    problems.append((visit.plan.batch_sizes[1], _K, visit.plan.short))
    rows = []
    for row in tuned(sizes, problems, 35.0 if is_full else 10.0, num_calls):
        rows.append(row)
        yield row
    table = {"environment": environment(visit.device), "rows": rows}
    places = [visit.out, *([_ROOT / "benchmarks/results"] if is_full and visit.device.type == "cuda" else [])]
    for place in places:
        (place / "launch_configurations.json").write_text(json.dumps(table, separators=(",", ":")) + "\n")


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1]


PARTS: dict[str, Callable[[Visit], Iterator[Row]]] = {
    part.__name__: part for part in (plain, profiler, sampled, eagle3, methods, arrivals, tuning)
}
"""Parts by name, in their order."""


def environment(device: torch.device) -> dict[str, object]:
    """Return the provenance of a result, including the device."""
    told: dict[str, object] = {"type": device.type}
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        told |= {
            "name": found.name,
            "memory_gb": round(found.total_memory / 2**30, 1),
            "compute_capability": f"{found.major}.{found.minor}",
            "cuda": torch.version.cuda,
        }
    versions = {}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {**provenance(), "device": told, "num_threads": torch.get_num_threads(), "versions": versions}


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description="parts of a visit")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    visit = Visit(QUICK if options.quick else FULL, options.out)
    for name in options.parts:
        started, rows = perf_counter(), list[Row]()
        content: dict[str, object] = {
            "commit": options.commit,
            "environment": environment(visit.device),
            "rows": rows,
        }
        partial, file = options.out / f"{name}.partial.json", options.out / f"{name}.json"
        print(f"part {name}", flush=True)
        for row in PARTS[name](visit):
            rows.append(row)
            print(json.dumps(row)[:600], flush=True)
            content |= {"seconds": perf_counter() - started, "load_average_after": load_average()}
            partial.write_text(json.dumps(content))
        partial.replace(file)
    visit.close()


if __name__ == "__main__":
    main()
