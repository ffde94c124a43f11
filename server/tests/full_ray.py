"""`python server/tests/full_ray.py`: two replicas behind Ray Serve, of which one is killed, and a rolling update.

It needs `pip install "specdec-server[ray]" specdec-plugin-ngram specdec-zoo openai` in an environment of its own, 6 GB of
memory and a few minutes, and prints what it saw; the exit code is 1 if something else was expected.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import ray
from openai import OpenAI
from ray import serve

from specdec import LLM, SamplingParams
from specdec_server.ray import app

NUM_STREAMS, NUM_TOKENS = 32, 96
ARGUMENTS = {"model": "zoo", "dtype": "float32", "num_replicas": 2, "num_cpus": 1}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
PROMPTS = [f"import os\n\n\ndef read_{index}(path):\n    " for index in range(NUM_STREAMS)]
CLIENT = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="EMPTY", max_retries=0, timeout=300)
_FAILED: list[str] = []


def main() -> int:
    """Run all checks; return the exit code."""
    expected = offline()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.run(app({**ARGUMENTS, "speculative_config": NGRAM}), name="specdec", route_prefix="/")
    try:
        streams(expected)
        conversations()
        killed(expected)
        updated(expected)
        metrics()
    finally:
        serve.shutdown()
        ray.shutdown()
    return 1 if _FAILED else 0


def offline() -> list[list[int]]:
    """Return the tokens of every prompt, without server and drafts."""
    llm = LLM(model="zoo", dtype="float32")
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)
    return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, params, use_tqdm=False)]


def streamed(index: int, seen: Callable[[], None] = lambda: None) -> list[int] | Exception:
    """Return the tokens of a stream, or how it failed."""
    ids: list[int] = []
    try:
        pieces = CLIENT.completions.create(
            model="zoo",
            prompt=PROMPTS[index],
            max_tokens=NUM_TOKENS,
            temperature=0,
            stream=True,
            extra_body={"return_token_ids": True},
        )
        reason = None
        for piece in pieces:
            choice: Any = piece.choices[0]
            ids += choice.token_ids
            reason = choice.finish_reason or reason
            seen()
        return ids if reason is not None else RuntimeError("it ended without a finish reason")
    except Exception as error:  # what it is gets counted
        return error


def streams(expected: list[list[int]]) -> None:
    """Two replicas, 32 streams."""
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        found = list(pool.map(streamed, range(NUM_STREAMS)))
    check("streams equal to offline", sum(a == b for a, b in zip(found, expected, strict=True)), NUM_STREAMS)


def conversations() -> None:
    """Requests with the same session come to the same replica, which has their prefix."""
    hits = 0
    for number in range(8):
        prompt = f"class Reader{number}:\n" + "    def read(self):\n        return self.lines\n" * 6
        for turn in range(4):
            answer = CLIENT.completions.create(
                model="zoo",
                prompt=prompt,
                max_tokens=8,
                temperature=0,
                extra_headers={"x-session-id": f"reader-{number}"},
            )
            details = answer.usage.prompt_tokens_details if answer.usage else None
            hits += bool(turn and details and details.cached_tokens)
    check("later turns that found their prefix", hits, 24)


def killed(expected: list[list[int]]) -> None:
    """One replica is killed while streams run on both."""
    num_seen = 0
    lock, running = threading.Lock(), threading.Event()

    def seen() -> None:
        nonlocal num_seen
        with lock:
            num_seen += 1
            if num_seen > 2 * NUM_STREAMS:
                running.set()

    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        asked = [pool.submit(streamed, index, seen) for index in range(NUM_STREAMS)]
        running.wait(120)
        victim = replica_ids()[0]
        os.kill(victim, signal.SIGKILL)
        found = [answer.result() for answer in asked]
    wrong = [index for index, ids in enumerate(found) if ids != expected[index]]
    errors = sorted({f"{type(found[index]).__name__}: {found[index]}"[:150] for index in wrong})
    told = [index for index in wrong if isinstance(found[index], Exception)]
    print(f"killed one replica: {NUM_STREAMS - len(wrong)} streams whole, {len(wrong)} ended with {errors}")
    check("streams that are neither whole nor an error", len(wrong) - len(told), 0)
    check("streams on the other replica that are whole: some", bool(NUM_STREAMS - len(wrong)), True)
    again = [streamed(index) for index in wrong]
    check(
        "of these equal to offline when asked again",
        sum(again[i] == expected[w] for i, w in enumerate(wrong)),
        len(wrong),
    )
    deadline = time.monotonic() + 300
    while (victim in replica_ids() or num_running() < 2) and time.monotonic() < deadline:
        time.sleep(1)
    check("replicas after a while", num_running(), 2)


def updated(expected: list[list[int]]) -> None:
    """Another configuration is rolled out while requests go on."""
    stop, found = threading.Event(), []

    def ask(index: int) -> None:
        while not stop.is_set():
            found.append(streamed(index) == expected[index])

    before = set(replica_ids())
    with ThreadPoolExecutor(4) as pool:
        for index in range(4):
            pool.submit(ask, index)
        serve.run(
            app({**ARGUMENTS, "speculative_config": NGRAM | {"num_speculative_tokens": 2}}), name="specdec"
        )
        stop.set()
    check("replicas that stayed", len(before & set(replica_ids())), 0)
    check("streams during the update equal to offline", sum(found), len(found))


def metrics() -> None:
    """Ray's page of metrics has both replicas."""
    port = ray.nodes()[0]["MetricsExportPort"]
    name = "ray_vllm_spec_decode_num_draft_tokens_total"
    deadline, replicas = time.monotonic() + 60, set[str]()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(streamed, range(NUM_STREAMS)))
    while len(replicas) < 2 and time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith(name)]
        replicas = {line.partition('replica="')[2].partition('"')[0] for line in lines}
        time.sleep(2)
    check(f"replicas that {name} tells of", min(2, len(replicas)), 2)


def replica_ids() -> list[int]:
    """Return the processes of the replicas."""
    found = psutil.process_iter(["cmdline"])
    return sorted(
        p.pid for p in found if (p.info["cmdline"] or [""])[0].startswith("ray::ServeReplica:specdec")
    )


def num_running() -> int:
    """Return how many replicas serve, by what Ray says."""
    states = serve.status().applications["specdec"].deployments["specdec"].replica_states
    return states.get("RUNNING", 0)


def check(what: str, found: object, expected: object) -> None:
    """Print what was found, and note it if something else was expected."""
    print(f"{what}: {found}" + ("" if found == expected else f", expected {expected}"), flush=True)
    if found != expected:
        _FAILED.append(what)


if __name__ == "__main__":
    sys.exit(main())
