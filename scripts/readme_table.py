"""Turns a result file of `specdec bench` or of a script in benchmarks/ into a Markdown table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specdec_cli.bench.shown import is_shown

Cells = list[str]
_ENGINES = {"vllm": "vLLM", "llama_cpp": "llama.cpp", "transformers": "transformers"}


def results_in(file: Path) -> dict[str, Any]:
    """Return a result file; rows that are lists become mappings by the names in `columns`, without what is null.

    A part that is nothing but `columns` and `rows` becomes its rows.
    """
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, part in content.items():
        if isinstance(part, dict) and set(part) == {"columns", "rows"}:
            content[name] = [_named(part["columns"], row) for row in part["rows"]]
    names = content.pop("columns", None)
    for part in [content, *content.get("cases", [])] if names is not None else []:
        if "rows" in part:
            part["rows"] = [_named(names, row) for row in part["rows"]]
    return content


def _named(names: list[str], row: list[Any]) -> dict[str, Any]:
    """Return a row by the names of its columns; `ratio.low` is `low` in `ratio`."""
    found: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        *outer, name = name.split(".")
        if value is not None:
            (found.setdefault(outer[0], {}) if outer else found)[name] = value
    return found


def results_table(file: Path) -> str:
    """Return the rows of a result file as a table with its provenance, or one line if there is no file yet."""
    if not file.exists():
        return f"*Not measured yet: `{file.name}` is missing.*"
    content = results_in(file)
    if "cases" in content:
        rows = _comparison_rows(content["cases"])
    else:
        rows = (_suite_rows if "category" in content["rows"][0] else _bench_rows)(content["rows"])
    return f"{markdown_table(rows)}\n\n{provenance(content['environment'], file)}"


def engines_table(file: Path) -> str:
    """Return a comparison with several engines as a table: one line per engine, one column per method."""
    content = results_in(file)
    methods = list(dict.fromkeys(_method(row["ours"]) for case in content["cases"] for row in case["rows"]))
    methods.sort(key=lambda method: method != "none")
    lines = [["batch", "engine", *("plain" if method == "none" else method for method in methods)]]
    for case in content["cases"]:
        for engine, cells in _engines(case["rows"]).items():
            lines.append([str(case["batch_size"]), engine, *(cells.get(method, "") for method in methods)])
    return f"{markdown_table(lines)}\n\n{provenance(content['environment'], file)}"


def gains_table(greedy: Path, sampled: Path) -> str:
    """Return what each method that two suites have gains: tokens/s, and the speed-up without and with sampling."""
    contents = [results_in(file) for file in (greedy, sampled)]
    overall = [
        {row["name"]: row for row in content["rows"] if row["category"] == content["rows"][0]["category"]}
        for content in contents
    ]
    assert all(row["identical_to_baseline"] for rows in overall for row in rows.values())
    heads = [f"speed-up at temperature {content['environment']['temperature']:g}" for content in contents]
    lines = [["method", "tokens/s", *heads]]
    for name, row in overall[0].items():
        if name not in overall[1]:
            continue
        lines.append(
            [
                "plain" if name == "baseline" else f"`{name.split()[0]}`{_with_answers(name)}",
                f"{row['tokens_per_s']:.0f}",
                f"{row['speedup']:.2f}",
                f"{overall[1][name]['speedup']:.2f}",
            ]
        )
    environment = contents[0]["environment"]
    return (
        f"{markdown_table(lines)}\n\n{environment['cpu']}, {environment['num_cpus']} cores, "
        f"{environment['dtype']}; every text is the same as plain decoding's. `eagle3` is the zoo's head."
    )


def _with_answers(name: str) -> str:
    return " with the model's earlier answers" if "suffix_decoding_cache_path" in name else ""


def _engines(rows: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return tokens/s by engine and method; peers also have the ratio of ours to theirs for the same method."""
    found: dict[str, dict[str, str]] = {"specdec": {}}
    for row in rows:
        method, engine = _method(row["ours"]), row["peer"].split()[0]
        found["specdec"][method] = f"{row['ours_tokens_per_s']:.0f}"
        if engine == "specdec" or _method(row["peer"]) != method:
            continue
        stored = f" {row['peer'].split()[-1]}" if engine == "llama_cpp" else ""
        cell, ratio = "tokens differ", row["ratio"]
        if row["is_gate_passed"]:
            cell = (
                f"{row['peer_tokens_per_s']:.0f} ({ratio_text(ratio['median'], ratio['low'], ratio['high'])})"
            )
        found.setdefault(_ENGINES[engine] + stored, {})[method] = cell
    return found


def _method(variant: str) -> str:
    """Return the method in a variant's name, such as `ngram` in `vllm ngram k=4 first compiled`."""
    return variant.split()[1]


def markdown_table(rows: list[Cells]) -> str:
    """Return rows as a Markdown table; the first row is the header."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _bench_rows(rows: list[dict[str, Any]]) -> list[Cells]:
    """Rows of `specdec bench --json`: methods against plain decoding."""
    head = [
        "configuration",
        "batch",
        "tokens/s",
        "speed-up [95 %]",
        "mean acceptance length",
        "same text as plain",
    ]
    return [head] + [
        [
            str(row["name"]),
            str(row["batch_size"]),
            f"{row['tokens_per_s']:.0f}",
            ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"]),
            f"{row['mean_acceptance_length']:.2f}",
            "yes" if row["identical_to_baseline"] else "no",
        ]
        for row in rows
    ]


def _suite_rows(rows: list[dict[str, Any]]) -> list[Cells]:
    """Rows of `specdec bench --suite --json`: one line per configuration, with one speed-up per task."""
    tasks = list(dict.fromkeys(row["category"] for row in rows))
    by_task = {(row["name"], row["category"]): row for row in rows}
    head = [
        "configuration",
        "tokens/s",
        "overall [95 %]",
        *tasks[1:],
        "tokens a step",
        "mean acceptance length",
        "same text as plain",
    ]
    return [head] + [
        [
            str(row["name"]),
            f"{row['tokens_per_s']:.0f}",
            ratio_text(row["speedup"], row["speedup_low"], row["speedup_high"]),
            *(f"{by_task[row['name'], task]['speedup']:.2f}" for task in tasks[1:]),
            f"{row['tokens_per_step']:.2f}",
            f"{row['mean_acceptance_length']:.2f}",
            "yes" if row["identical_to_baseline"] else "no",
        ]
        for row in rows
        if row["category"] == tasks[0]
    ]


def _comparison_rows(cases: list[dict[str, Any]]) -> list[Cells]:
    """Rows of the comparisons in benchmarks/: ours against a peer. No number is shown if the gate failed."""
    head = [
        "dtype",
        "batch",
        "specdec",
        "peer",
        "specdec tokens/s",
        "peer tokens/s",
        "ratio [95 %]",
        "same tokens",
    ]
    rows = [head]
    for row in (row for case in cases for row in case["rows"]):
        is_valid, ratio = row["is_gate_passed"], row["ratio"]
        rows.append(
            [
                row["dtype"],
                str(row["batch_size"]),
                _shown(row["ours"]),
                _shown(row["peer"]),
                f"{row['ours_tokens_per_s']:.0f}" if is_valid else "",
                f"{row['peer_tokens_per_s']:.0f}" if is_valid else "",
                ratio_text(ratio["median"], ratio["low"], ratio["high"]) if is_valid else "tokens differ",
                f"{row['num_identical']} of {row['num_prompts']}",
            ]
        )
    return rows


def _shown(variant: str) -> str:
    """Return a variant's name without the n-gram match rule for vLLM, which always uses the first match."""
    if variant.startswith("vllm") and not variant.endswith("specdec"):
        variant = variant.replace(" recent", "").replace(" first", "")
    return variant


def ratio_text(middle: float, low: float, high: float) -> str:
    """Return a ratio with its bounds, which alone are told where they include 1."""
    value = f"{middle:.2f}" if is_shown(low, high) else "no difference"
    return f"{value} [{low:.2f}, {high:.2f}]"


def provenance(environment: dict[str, Any], file: Path) -> str:
    """One line with processor, cores, date and commit, as far as the file has them."""
    device = environment.get("device", "cpu")
    device = device["name"] if isinstance(device, dict) else device
    date = environment.get("date") or environment.get("time")
    cores = environment.get("num_cores") or environment.get("num_cpus")
    facts = [
        environment.get("cpu") if device == "cpu" else device,
        f"{cores} cores" if cores and device == "cpu" else None,
        str(date)[:10] if date else None,
        _commit(environment),
    ]
    known = ", ".join(str(fact) for fact in facts if fact)
    return f"{known}; command, versions and every row are in `benchmarks/results/{file.name}`."


def _commit(environment: dict[str, Any]) -> str | None:
    """Return the commit, and whether the tree had uncommitted changes."""
    commit = environment.get("commit")
    if not commit:
        return None
    is_modified = environment.get("is_modified") or commit.endswith("-dirty")
    return f"commit {commit[:10]}{' with uncommitted changes' if is_modified else ''}"
