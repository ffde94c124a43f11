"""Runs SGLang's engine for the tests: what it is started with, and what it is asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[3] / "hosting/tests/real"
sys.path.insert(0, str(SHARED))

from tried import by_short_name  # noqa: E402

ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


class Engine:
    """SGLang's engine in float32, with the proposers of this repository or without speculation.

    Args:
        model: directory of the target.
        first: the `speculative_config` that it starts with; None for none.
        num_drafted: k, of all configurations.
        arguments: of SGLang.
    """

    def __init__(
        self, model: str, first: dict[str, Any] | None, num_drafted: int = 5, **arguments: Any
    ) -> None:
        self._file = Path(tempfile.mkdtemp()) / "specdec.json"
        os.environ.update(ENVIRONMENT)
        if first is not None:
            self._file.write_text(json.dumps(first))
            os.environ["SPECDEC_CONFIG"] = os.environ["SPECDEC_STANDIN_CONFIG"] = str(self._file)
            arguments |= {
                "speculative_algorithm": "SPECDEC",
                "speculative_num_draft_tokens": num_drafted + 1,
            }
        import sglang

        self.engine = sglang.Engine(
            model_path=model,
            device="cpu",
            dtype="float32",
            mem_fraction_static=0.2,
            max_total_tokens=8192,
            max_running_requests=8,
            context_length=1024,
            log_level=os.environ.get("LEVEL", "error"),
            skip_server_warmup=True,
            **arguments,
        )

    def reopen(self, config: dict[str, Any]) -> None:
        """Replace the proposer, and empty SGLang's cache."""
        self._file.write_text(json.dumps(config))
        assert self.engine.flush_cache().success

    def ask(self, prompts: list[str], **parameters: Any) -> list[dict[str, Any]]:
        """Return SGLang's outputs, greedy by default; lengths differ, so that the batch changes."""
        given = [sampling(i) | parameters for i in range(len(prompts))]
        return self.engine.generate(prompts, given)

    def stream(self, prompts: list[str], num_requests: int) -> list[tuple[list[int], str]]:
        """Ask the prompts in turn, all at once, and abort every fourth request; return tokens and how each ended."""

        async def one(i: int) -> tuple[list[int], str]:
            name, place = f"stream-{i}", i % len(prompts)
            outputs = await self.engine.async_generate(prompts[place], sampling(place), stream=True, rid=name)
            ids: list[int] = []
            async for output in outputs:
                ids, reason = output["output_ids"], output["meta_info"]["finish_reason"]
                if i % 4 == 3 and len(ids) >= 8:
                    self.engine.tokenizer_manager.abort_request(rid=name)
            return [*ids], reason["type"]

        async def everything() -> list[tuple[list[int], str]]:
            return await asyncio.gather(*map(one, range(num_requests)))

        return self.engine.loop.run_until_complete(everything())

    def counters(self) -> dict[str, Any]:
        """Return the proposer's counters, as `/server_info` has them."""
        return by_short_name(self.engine.get_server_info()["internal_states"][0]["specdec"])

    def end(self) -> None:
        self.engine.shutdown()


def sampling(i: int) -> dict[str, Any]:
    return {"temperature": 0, "max_new_tokens": 32 - 7 * (i % 3), "ignore_eos": True}


def prompts(count: int) -> list[str]:
    """Return prompts of the zoo."""
    from specdec_zoo.prompts import prompts as held_out

    return [each["prompt"] for each in held_out(count)]
