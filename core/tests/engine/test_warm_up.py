"""Nothing is compiled while a first request waits, and a sampler that cannot verify is found when the engine is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import speccheck
from speccheck.drawing import Drawing
from speccheck.engines import make_llm, scripted

from specdec import PluginError
from specdec.interfaces import Capability, Sampler, Scores, Verdict, VerifyBatch
from specdec.samplers.strict import StrictSampler

SCRIPT = """
import json, sys
from numba.core.registry import CPUDispatcher
from speccheck.drawing import Drawing
from speccheck.engines import make_llm
from speccheck.models import prompts, tiny
from specdec import SamplingParams

def compiled():
    ours = [m for name, m in sys.modules.items() if name.startswith("specdec_kernels.cpu")]
    found = [f for module in ours for f in vars(module).values() if isinstance(f, CPUDispatcher)]
    return {f.py_func.__qualname__: len(f.signatures) for f in found}

llm = make_llm(tiny("llama"), json.loads(sys.argv[1]), max_num_seqs=2)
before = compiled()
params = [SamplingParams(temperature=t, seed=1, max_tokens=12) for t in (0.8, 0.0, 0.8)]
outputs = llm.generate(prompts([5, 7, 9], seed=1), params)
after = compiled()
print(json.dumps([before, {name: n for name, n in after.items() if n != before.get(name)}]))
"""
DRAWING = {"method": "speccheck.drawing.Drawing", "num_speculative_tokens": 4}
CONFIGS = {
    "without speculation": (None, "walk"),
    "strict": (scripted(k=4, shape="mixed", seed=3), "walk"),
    "block": (DRAWING | {"shape": "iid", "rejection_sample_method": "block"}, "compiled_stops"),
    "typical": (scripted(k=4, shape="mixed") | {"rejection_sample_method": "typical"}, "multinomial_rows"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.full if n == "typical" else ()) for n in CONFIGS]
)
def test_a_first_request_compiles_nothing(name: str) -> None:
    config, function = CONFIGS[name]
    path = os.pathsep.join([str(Path(speccheck.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(config)], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, late = json.loads(done.stdout.splitlines()[-1])
    assert before[function] > 0
    assert late == {}


class Watching(StrictSampler):
    """Keeps what it was asked to verify."""

    name: ClassVar[str] = "watching"
    seen: ClassVar[list[tuple[bool, bool]]] = []

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        self.seen.append((batch.parents is not None, batch.drawn is not None))
        return super().verify(scores, batch)


class WatchingAll(Watching):
    name: ClassVar[str] = "watching_all"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE, Capability.DRAFT_PROBS})


class WatchingNothing(Watching):
    name: ClassVar[str] = "watching_nothing"
    capabilities: ClassVar[frozenset[Capability]] = frozenset()


class DrawsChains(Drawing):
    name: ClassVar[str] = "draws_chains"
    capabilities = Drawing.capabilities - {Capability.TREE}


class Raising(StrictSampler):
    name: ClassVar[str] = "raising"

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if max(batch.num_nodes):
            raise ZeroDivisionError("no nodes, please")
        return super().verify(scores, batch)


def with_sampler(config: dict[str, object], sampler: type[Sampler]) -> dict[str, object]:
    return config | {"rejection_sample_method": f"{__file__}:{sampler.__name__}"}


@pytest.mark.parametrize(
    ("sampler", "config", "kinds"),
    [
        (Watching, scripted(), {(False, False), (True, False)}),
        (WatchingAll, scripted(), {(False, False), (True, False)}),
        (WatchingAll, DRAWING, {(False, False), (True, False), (False, True), (True, True)}),
        (WatchingNothing, DRAWING | {"method": f"{__file__}:DrawsChains"}, {(False, False)}),
    ],
)
def test_a_sampler_is_shown_what_may_come(subject, sampler, config, kinds) -> None:
    llm = make_llm(subject.model, with_sampler(config, sampler))
    seen: list[tuple[bool, bool]] = llm.sampler.seen  # type: ignore[attr-defined]  # it is one of these
    found = set(seen)
    seen.clear()
    assert found == kinds


def test_a_sampler_that_cannot_verify_is_refused(subject) -> None:
    with pytest.raises(
        PluginError,
        match="sampler 'raising' cannot verify a draft of 2 nodes: ZeroDivisionError: no nodes, please",
    ):
        make_llm(subject.model, with_sampler(scripted(), Raising))
