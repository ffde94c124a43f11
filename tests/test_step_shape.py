"""How much of the code one decode step goes through: functions, files, carrier types, and frames from the scorer to a backend.

A reader follows all of them to understand a step, so a change may lower these numbers and never raises them. They are held for
n-grams on the CPU and for a recorded EAGLE-3 head on the pretend device. The functions that the pretend device runs in place of
kernels and in replays of graphs are counted by themselves: on a device no Python runs there.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import pytest
from pretend import PretendDevice

from specdec import LLM, SamplingParams

MOST = {
    "cpu": {"functions": 57, "files": 27, "carriers": 10, "frames": 4, "kernels": 0},
    "device": {"functions": 169, "files": 55, "carriers": 29, "frames": 4, "kernels": 24},
}
CONFIGS = {
    "cpu": {"method": "ngram", "num_speculative_tokens": 3},
    "device": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3},
}
OURS = (
    "specdec", "specdec_kernels", "specdec_runtime", "specdec_plugin_ngram", "specdec_plugin_eagle",
)  # fmt: skip
ON_DEVICE = {("pretend.graphs", "play"), ("pretend.kernels", "compute")}
"""Functions of the pretend device, by module, that do a device's work."""


@dataclass
class Shape:
    """What the calls of one step went through."""

    functions: set[CodeType] = field(default_factory=set)
    carriers: set[type] = field(default_factory=set)
    """Dataclasses and named tuples of ours that a function was called with or returned."""
    kernels: set[CodeType] = field(default_factory=set)
    """Functions of ours that stood in for kernels, by themselves or in the replay of a graph."""
    device_depth: int = 0
    """Frames of the pretend device, below which these run."""
    frames: int = 0
    """Most frames of ours between `Scorer.score` and the first function of a backend, both counted."""

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def watch(self, frame: FrameType, event: str, value: Any) -> None:
        """Take in one event of `sys.setprofile`."""
        code = frame.f_code
        if event in ("call", "return") and (module_of(frame), code.co_name) in ON_DEVICE:
            self.device_depth += 1 if event == "call" else -1
        if event not in ("call", "return") or not is_ours(frame):
            return
        if code.co_name.startswith("<") or code.co_filename.startswith("<"):
            return  # comprehensions and lambdas belong to the function around them; dataclasses make their own
        if self.device_depth:
            self.kernels.add(code)
            return
        self.functions.add(code)
        given = [value] if event == "return" else list(frame.f_locals.values())
        self.carriers |= {type(each) for each in given if is_carrier(each)}
        if event == "call" and module_of(frame).startswith("specdec_kernels"):
            self.frames = max(self.frames, frames_to_score(frame))


def is_carrier(value: object) -> bool:
    is_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
    return (is_tuple or dataclasses.is_dataclass(value)) and is_our_name(type(value).__module__)


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def is_our_name(module: str) -> bool:
    return module.partition(".")[0] in OURS


def is_ours(frame: FrameType) -> bool:
    return is_our_name(module_of(frame))


def frames_to_score(frame: FrameType) -> int:
    """Return the number of our frames from `score` to a function of a backend that core called; 0 for any other function."""
    caller = frame.f_back
    count = 1
    while caller is not None:
        if module_of(caller).startswith("specdec_kernels"):
            return 0  # not the first
        if is_ours(caller) and not caller.f_code.co_name.startswith("<"):
            count += 1
            if caller.f_code.co_name == "score":
                return count
        caller = caller.f_back
    return 0


def measured(run: Callable[[], object]) -> Shape:
    shape = Shape()
    sys.setprofile(shape.watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return shape


@pytest.fixture(scope="module", params=MOST)
def step(request: pytest.FixtureRequest) -> Iterator[tuple[str, Shape]]:
    """A decode step of the zoo's target that verifies a draft, in the middle of a request, with a fixed k."""
    where: str = request.param
    with PretendDevice() if where == "device" else nullcontext():
        llm = LLM(
            "zoo", speculative_config=CONFIGS[where] | {"adaptive": False}, max_num_seqs=1, max_model_len=256,
            max_num_batched_tokens=64, num_gpu_blocks_override=64, dtype="float32",
            device="cuda:0" if where == "device" else "cpu",
        )  # fmt: skip
        engine = llm._built.engine
        text = llm.get_tokenizer()("import os\nimport sys\nimport os\nimport sys\nimport os\n")["input_ids"]
        params = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
        engine.add(
            llm._input_processor.prepare("shape", {"prompt_token_ids": text}, params, is_streaming=False)
        )
        for _ in range(6):
            engine.step()
        before = engine.metrics.num_draft_tokens
        shape = measured(engine.step)
        assert engine.metrics.num_draft_tokens > before, "the step must have verified a draft"
        llm.shutdown()
        yield where, shape


def names(codes: set[CodeType]) -> str:
    return "\n".join(sorted(f"{code.co_filename.rpartition('src/')[2]}:{code.co_qualname}" for code in codes))


def test_functions(step: tuple[str, Shape]) -> None:
    where, shape = step
    assert len(shape.functions) <= MOST[where]["functions"], names(shape.functions)


def test_functions_in_place_of_kernels(step: tuple[str, Shape]) -> None:
    where, shape = step
    assert len(shape.kernels) <= MOST[where]["kernels"], names(shape.kernels)


def test_files(step: tuple[str, Shape]) -> None:
    where, shape = step
    assert len(shape.files) <= MOST[where]["files"], "\n".join(sorted(shape.files))


def test_carriers(step: tuple[str, Shape]) -> None:
    where, shape = step
    assert len(shape.carriers) <= MOST[where]["carriers"], sorted(c.__name__ for c in shape.carriers)


def test_frames_from_score_to_a_backend(step: tuple[str, Shape]) -> None:
    where, shape = step
    assert 0 < shape.frames <= MOST[where]["frames"]
