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


def run(job: dict[str, Any], rank: int) -> list[list[list[int]]]:
    """Return the token ids of every output of every run of one engine."""
    llm = LLM(**job["arguments"])
    found = []
    for given in job["runs"]:
        prompts = given.get("prompts_by_rank", [given.get("prompts")] * 8)[rank]
        params = [SamplingParams(**params) for params in given["params"]]
        found.append([output.outputs[0].token_ids for output in llm.generate(prompts, params)])
    accepted = [m.value for m in llm.get_metrics() if m.name == "vllm:spec_decode_num_accepted_tokens"]
    streamed = list(llm.stream(job["runs"][0]["prompts"][0], SamplingParams(temperature=0.0, max_tokens=3)))
    return [*found, [streamed[-1].outputs[0].token_ids, [int(accepted[0])]]]


def main() -> None:
    """Run the jobs of a folder."""
    torch.set_num_threads(1)
    folder, rank = Path(sys.argv[1]), int(os.environ.get("RANK", "0"))
    jobs = json.loads((folder / "jobs.json").read_text())
    (folder / f"pid_{rank}").write_text(str(os.getpid()))
    for number, job in enumerate(jobs):
        found = run(job, rank)
        (folder / f"found_{number}_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
