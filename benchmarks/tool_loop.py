"""Run the tool-calling loop of OpenAI's client against `specdec serve`: 20 tasks, with several methods and without any.

    python benchmarks/tool_loop.py [--model smollm2] [--tasks 20] [--quick] [--json OUT]

Each task runs non-streamed and streamed with `tool_choice="required"`, and the result of the call is sent back. The command
exits with 1 unless every gate holds: every call names an existing tool with arguments that match its schema; streamed and
non-streamed calls are equal; every method gives the same calls and texts as no speculation.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common.provenance import load_average, provenance
from openai import OpenAI

METHODS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2},
    "suffix": {"method": "suffix", "num_speculative_tokens": 8},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4},
    "composite": {
        "method": "composite",
        "proposers": [{"method": "suffix"}, {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4}],
        "num_speculative_tokens": 4,
    },
}  # fmt: skip
CITIES = ("Tokyo", "Paris", "Lima", "Oslo", "Cairo")
VALUES: dict[str, dict[str, Any]] = {
    "get_weather": {"city": {"enum": list(CITIES)}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "add": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "integer", "minimum": 0, "maximum": 99}},
    "set_timer": {"minutes": {"type": "integer", "minimum": 1, "maximum": 60}, "loud": {"type": "boolean"}},
    "find_note": {"tag": {"enum": ["home", "work", "trip"]}, "newest": {"type": "boolean"}},
}  # fmt: skip
"""Tools and the schemas of their arguments, all bounded, since a small model may not stop by itself."""


def tools() -> list[dict[str, Any]]:
    """Return the tools in the form of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": name.replace("_", " "),
                "parameters": {
                    "type": "object",
                    "properties": values,
                    "required": list(values),
                    "additionalProperties": False,
                },
            },
        }
        for name, values in VALUES.items()
    ]


def questions(num_tasks: int) -> list[str]:
    """Return the questions of all tasks."""
    kinds = (
        "What is the weather in {city}, in celsius?",
        "How much is {n} and {m}?",
        "Wake me in {n} minutes, loudly.",
        "Find my newest note about the trip to {city}.",
    )
    return [
        kinds[i % len(kinds)].format(city=CITIES[i % len(CITIES)], n=i + 3, m=2 * i + 1)
        for i in range(num_tasks)
    ]


@dataclass
class Run:
    """Results of one method."""

    answers: list[list[Any]] = field(default_factory=list)
    """For each task: the call's name and arguments, and the text after its result."""
    num_parseable: int = 0
    num_streamed_same: int = 0
    accepted: int = 0
    drafted: int = 0
    seconds: float = 0.0


@contextmanager
def serving(model: str, speculation: dict[str, Any] | None) -> Iterator[OpenAI]:
    """Run a server in deterministic mode, since tokens must not depend on drafts."""
    words = [
        "serve",
        model,
        "--port",
        "0",
        "--deterministic",
        "--max-model-len",
        "1024",
        "--disable-access-log",
    ]
    if speculation is not None:
        words += ["--speculative-config", json.dumps(speculation)]
    with TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        command = [str(Path(sys.executable).with_name("specdec")), *words]
        with subprocess.Popen(command, stderr=log) as process:
            try:
                while not (found := re.search(r"at (http://[\d.:]+)", Path(log.name).read_text())):
                    if process.poll() is not None:
                        raise SystemExit(Path(log.name).read_text())
                    time.sleep(0.1)
                yield OpenAI(base_url=f"{found[1]}/v1", api_key="EMPTY", max_retries=0)
            finally:
                process.terminate()
                process.wait(timeout=60)


def is_right(name: str, arguments: str) -> bool:
    """Return whether a call names a tool and its arguments match the schema."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return False
    values = VALUES.get(name)
    if values is None or not isinstance(given, dict) or set(given) != set(values):
        return False
    kinds = {"integer": int, "boolean": bool}
    return all(
        given[key] in schema["enum"] if "enum" in schema else type(given[key]) is kinds[schema["type"]]
        for key, schema in values.items()
    )


def streamed_call(client: OpenAI, asked: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the arguments assembled from a stream."""
    name = arguments = ""
    create: Callable[..., Any] = (
        client.chat.completions.create
    )  # overloaded, and none of the overloads takes a dictionary
    for chunk in create(stream=True, **asked):
        for call in chunk.choices[0].delta.tool_calls or () if chunk.choices else ():
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    return name, arguments


def solve(client: OpenAI, model: str, question: str, run: Run) -> None:
    """Run the loop once for a question."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    asked = {"model": model, "tools": tools(), "temperature": 0, "max_tokens": 100, "messages": messages}
    forced = {**asked, "tool_choice": "required", "parallel_tool_calls": False}
    create: Callable[..., Any] = client.chat.completions.create
    begun = time.perf_counter()
    completion = create(**forced)
    message = completion.choices[0].message
    call = message.tool_calls[0]
    name, arguments = call.function.name, call.function.arguments
    run.num_parseable += is_right(name, arguments)
    run.num_streamed_same += streamed_call(client, forced) == (name, arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"result": "done"})}
    behind = {
        **asked,
        "messages": [*messages, message.model_dump(exclude_none=True), result],
        "max_tokens": 16,
    }
    last = create(tool_choice="none", **behind)
    run.seconds += time.perf_counter() - begun
    run.answers.append([name, arguments, last.choices[0].message.content])
    for answer in (completion, last):
        told = answer.model_extra["metrics"]["speculative_decoding"] if answer.model_extra else {}
        run.accepted += told.get("num_accepted_draft_tokens", 0)
        run.drafted += told.get("num_draft_tokens", 0)


def main(arguments: list[str] | None = None) -> int:
    """Run every method; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="Two tasks, with ngram and without.")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    num_tasks = 2 if options.quick else options.tasks
    names = ["none", "ngram"] if options.quick else ["none", *(n for n in options.methods if n != "none")]
    runs: dict[str, Run] = {}
    load = load_average()
    for name in names:
        runs[name] = Run()
        with serving(options.model, METHODS[name]) as client:
            for question in questions(num_tasks):
                solve(client, options.model, question, runs[name])
        told = runs[name]
        equal = sum(a == b for a, b in zip(told.answers, runs["none"].answers, strict=True))
        print(
            f"{name:8} parseable {told.num_parseable}/{num_tasks}  streamed as whole {told.num_streamed_same}/{num_tasks}  "
            f"as without drafts {equal}/{num_tasks}  accepted {told.accepted} of {told.drafted}",
            flush=True,
        )
    whole = all(run.num_parseable == run.num_streamed_same == num_tasks for run in runs.values())
    is_equal = all(run.answers == runs["none"].answers for run in runs.values())
    has_drafts = all(run.accepted for name, run in runs.items() if name != "none")
    if options.json:
        report = {
            "model": options.model,
            "num_tasks": num_tasks,
            "methods": {
                name: {
                    "speculative_config": METHODS[name],
                    "num_parseable": run.num_parseable,
                    "num_streamed_same": run.num_streamed_same,
                    "is_equal": run.answers == runs["none"].answers,
                    "accepted": run.accepted,
                    "drafted": run.drafted,
                    "seconds": round(run.seconds, 1),
                }
                for name, run in runs.items()
            },
            "load_average": load,
            "provenance": provenance(),
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if whole and is_equal and has_drafts else 1


if __name__ == "__main__":
    sys.exit(main())
