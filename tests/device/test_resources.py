"""Kernels as they are launched compile for every supported GPU, spill next to nothing, and fit its shared memory."""

from __future__ import annotations

import pytest
from pretend import PretendDevice
from pretend.launched import ARCHITECTURES, Launch, launched
from pretend.requests import TEXT, params

from specdec import LLM

OPTIONS = {
    "dtype": "bfloat16", "max_model_len": 500, "max_num_seqs": 8, "max_num_batched_tokens": 128, "num_gpu_blocks_override": 400,
}  # fmt: skip
MOST_REGISTERS = 255
"""What a thread has."""
MOST_SPILLED = {"draw_and_walk": 192}
"""Bytes of a thread that may be spilled, by kernel; none of others."""


@pytest.fixture(scope="module")
def launches() -> list[Launch]:
    """What a method with trees launches, at load and while requests of every kind are served."""
    config = {"method": "recycling", "num_speculative_tokens": 8, "adaptive": False}
    with launched() as found, PretendDevice():
        llm = LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)
        llm.generate([TEXT] * 4, params("mixed", 4), use_tqdm=False)
        llm.shutdown()
    return found


@pytest.mark.parametrize(
    "capability",
    [pytest.param(c, marks=pytest.mark.slow if c == 90 else pytest.mark.full) for c in ARCHITECTURES],
)
def test_kernels_fit(capability: int, launches: list[Launch]) -> None:
    assert {launch.name for launch in launches} >= {
        "paged_attention",
        "draw_and_walk",
        "move_rows",
        "penalise",
    }
    assert any(launch.named.get("TREE_WORDS") for launch in launches)
    for launch in launches:
        took = launch.compiled(capability)
        assert took.shared_bytes <= ARCHITECTURES[capability] * 1024, launch
        assert took.registers <= MOST_REGISTERS, launch
        assert took.stack_bytes <= MOST_SPILLED.get(launch.name, 0), launch
