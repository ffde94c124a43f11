"""Throughput of `specdec serve` with 1, 8 and 32 clients, with speculation off and on, interleaved in one run.

    python benchmarks/server_throughput.py [--model smollm2] [--speculative-config JSON ...] [--clients 1 8 32] [--quick]

Every configuration has its own server. All servers stay up, and one at a time receives requests. Each round sends the same
questions to all of them, in a changing order. Outputs are greedy and must be equal with and without drafts. The command exits
with 1 if an output differs, or if a configuration is more than 3 % slower than no speculation in the median of the rounds.
There are 96 questions. If a run needs more, later rounds repeat them, and `suffix` would learn the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.model import resolve_model
from common.prompts import load_prompts
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import paired_ratio
from load.client import Server
from load.serving import serving

OFF = "none"
MOST_LOST = 0.03
"""Maximum share of throughput that speculation may lose."""
_DEFAULT = '{"method": "ngram", "num_speculative_tokens": 5, "adaptive": true}'


@dataclass(frozen=True)
class Round:
    """Time and answers of one server for one set of questions."""

    seconds: float
    answers: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second over all clients."""
        return sum(map(len, self.answers)) / self.seconds


async def ask(server: Server, questions: Sequence[Sequence[list[int]]], max_tokens: int) -> Round:
    """Run all clients concurrently; each sends its questions one after another."""

    async def client(prompts: Sequence[list[int]]) -> list[tuple[int, ...]]:
        return [await _answer(server, prompt, max_tokens) for prompt in prompts]

    start = time.perf_counter()
    found = await asyncio.gather(*map(client, questions))
    return Round(time.perf_counter() - start, tuple(answer for answers in found for answer in answers))


async def _answer(server: Server, prompt: list[int], max_tokens: int) -> tuple[int, ...]:
    body = {
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
    }  # fmt: skip
    status, answer = await server.ask("/v1/completions", body)
    if status != 200:
        raise SystemExit(f"/v1/completions: {status} {answer[:300]!r}")
    return tuple(json.loads(answer)["choices"][0]["token_ids"])


def measure(
    servers: Mapping[str, Server], num_clients: int, pool: Sequence[list[int]], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row for each server except the one without drafts."""
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    names, taken = list(servers), 0
    for number in range(arguments.rounds):
        questions = []
        for _ in range(num_clients):
            questions.append([pool[(taken + n) % len(pool)] for n in range(arguments.num_requests)])
            taken += arguments.num_requests
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned:
            rounds[name].append(asyncio.run(ask(servers[name], questions, arguments.max_tokens)))
    plain = rounds.pop(OFF)
    return [compared(name, num_clients, found, plain) for name, found in rounds.items()]


def compared(name: str, num_clients: int, found: Sequence[Round], plain: Sequence[Round]) -> dict[str, Any]:
    """Return the row of a server, with its rounds paired with those of the server without drafts."""
    on, off = ([each.tokens_per_s for each in side] for side in (found, plain))
    pairs = [
        pair for a, b in zip(found, plain, strict=True) for pair in zip(a.answers, b.answers, strict=True)
    ]
    return {
        "speculation": name,
        "num_clients": num_clients,
        "tokens_per_s": [round(rate, 1) for rate in on],
        "tokens_per_s_without": [round(rate, 1) for rate in off],
        "ratio": asdict(paired_ratio(on, off)),
        "num_answers": len(pairs),
        "num_same": sum(a == b for a, b in pairs),
    }


def failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one sentence for each failed check."""
    found = []
    for row in rows:
        who = f"{row['speculation']}, {row['num_clients']} clients"
        if row["num_same"] != row["num_answers"]:
            found.append(
                f"{who}: {row['num_answers'] - row['num_same']} answers are not those without drafts"
            )
        if row["ratio"]["median"] < 1 - MOST_LOST:
            found.append(f"{who}: {row['ratio']['median']:.2f} times the tokens/s without drafts")
    return found


def main() -> int:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="smollm2", help="smollm2 (default), zoo, or a folder")
    add("--speculative-config", action="append", metavar="JSON", help=f"any number; default: {_DEFAULT}")
    add("--clients", type=int, nargs="+", default=[1, 8, 32], help="default: 1 8 32")
    add("--rounds", type=int, default=6, help="default 6, which bounds need")
    add(
        "--num-requests", type=int, default=2, help="of each client in a round, one after another (default 2)"
    )
    add("--max-tokens", type=int, default=96)
    add("--prompts", type=Path, help="JSON lines; default: HumanEval, for zoo its held-out prompts")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 1 and 2 clients, 2 rounds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.clients, arguments.rounds, arguments.max_tokens = [1, 2], 2, 16
    configs = [json.loads(text) for text in arguments.speculative_config or [_DEFAULT]]
    began = provenance()
    pool = load_prompts(arguments.prompts, resolve_model(arguments.model), 96, 400)
    common = [arguments.model, "--deterministic", "--no-enable-prefix-caching", "--max-model-len", "1024"]
    with ExitStack() as stack:
        servers = {}
        for number, config in enumerate([None, *configs]):
            words = common if config is None else [*common, "--speculative-config", json.dumps(config)]
            name = OFF if config is None else json.dumps(config)
            log = Path(__file__).with_name("load") / f"server-{number}.log"
            servers[name], _ = stack.enter_context(serving(words, log))
            asyncio.run(ask(servers[name], [pool[-2:]] * 2, 32))  # the first requests compile kernels
        rows = []
        for num_clients in arguments.clients:
            rows += measure(servers, num_clients, pool, arguments)
            print(json.dumps(rows[-len(configs) :], indent=1), flush=True)
    file = arguments.json or (None if arguments.quick else RESULTS / "server_throughput.json")
    if file is not None:
        settings = {
            name: getattr(arguments, name) for name in ("model", "rounds", "num_requests", "max_tokens")
        }
        write(
            {"environment": began, "load_average_after": load_average(), "settings": settings, "rows": rows},
            file,
        )
    wrong = failures(rows)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
