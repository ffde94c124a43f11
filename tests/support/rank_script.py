"""What each rank of a test runs: python rank_script.py FOLDER; jobs are read from FOLDER, results and pids written there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch

from specdec import LLM, SamplingParams
from specdec_runtime.interfaces import ForwardOutput, PackedBatch
from specdec_runtime.parallel.runner import SplitRunner


def run(llm: LLM, job: dict[str, Any], rank: int) -> list[Any]:
    """Return the token ids of every run, those of a stream, and how many drafted tokens were accepted before it."""
    found: list[Any] = []
    for number, given in enumerate(job["runs"]):
        Path(sys.argv[1], f"began_{number}_{rank}").touch()
        prompts = given["prompts_by_rank"][rank] if "prompts_by_rank" in given else given["prompts"]
        params = [SamplingParams(**params) for params in given["params"]]
        try:
            outputs = llm.generate(prompts, params)
        except RuntimeError as error:
            if not str(error).startswith("call "):  # what a scripted proposer raises
                raise
            return [str(error)]
        else:
            found.append([output.outputs[0].token_ids for output in outputs])
    accepted = [m.value for m in llm.get_metrics() if m.name == "vllm:spec_decode_num_accepted_tokens"]
    streamed = list(llm.stream(job["runs"][0]["prompts"][0], SamplingParams(temperature=0.0, max_tokens=3)))
    return [*found, streamed[-1].outputs[0].token_ids, accepted[0]]


def break_pass(number: int) -> None:
    """Have a pass of this rank raise."""
    forward, passes = SplitRunner.forward, iter(range(number + 1))

    def broken(runner: SplitRunner, batch: PackedBatch) -> ForwardOutput:
        if next(passes) == number:
            raise MemoryError("no memory left")
        return forward(runner, batch)

    SplitRunner.forward = broken  # type: ignore[method-assign]  # what a test asks for


def main() -> None:
    """Run the jobs of a folder."""
    torch.set_num_threads(1)
    folder, rank = Path(sys.argv[1]), int(os.environ.get("RANK", "0"))
    (folder / f"pid_{rank}").write_text(str(os.getpid()))
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        llm = LLM(**job["arguments"])
        if job.get("broken_rank") == rank:
            break_pass(4)
        found = run(llm, job, rank)
        (folder / f"found_{number}_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
