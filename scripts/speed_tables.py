"""Tables of the result files that have a form of their own: a GPU, `adaptive`, the server, expected tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from readme_table import Cells, markdown_table, provenance, ratio_text, results_in

BEST, PLAIN = 0.95, 0.98
"""The goals of `never_slower.py`: `adaptive` over the best fixed k, and over plain decoding."""


def _told(rows: list[Cells], content: dict[str, Any], file: Path, note: str = "") -> str:
    return f"{markdown_table(rows)}\n\n{note}{provenance(content['environment'], file)}"


def device_steps(file: Path) -> str:
    """Return steps on a device by batch size, without drafts and with up to four drafted tokens."""
    content = results_in(file)
    by = {(row["batch"], row["k"]): row for row in content["steps"]}
    lag = {(r["batch"], r["async_scheduling"]): r for r in content["lag"] if r["temperature"] == 0}
    rows = [["batch", "reading the weights, ms", "plain step, ms", "over reading"]]
    rows[0] += ["tokens/s, not launched ahead", "tokens/s, launched ahead"]
    rows[0] += ["step with k = 4 at most, ms", "tokens/s", "tokens a draft and step"]
    for batch in (batch for batch, ahead in lag if ahead):
        plain, drafts = by[batch, 0], by[batch, 4]
        rows.append(
            [
                f"{batch}",
                f"{plain['bound_ms']:.2f}",
                f"{plain['step_ms']:.2f}",
                f"{plain['step_ms'] / plain['bound_ms']:.2f}",
                *(f"{lag[batch, ahead]['tokens_per_s']:,}" for ahead in (False, True)),
                f"{drafts['step_ms']:.2f}",
                f"{drafts['tokens_per_s']:,}",
                f"{drafts['mean_acceptance_length']:.2f}",
            ]
        )
    return _told(rows, content, file)


def device_goals(file: Path) -> str:
    """Return the goals of the device benchmark, met or not."""
    rows = [["goal", "limit", "measured", "worst at", "verdict"]]
    for goal in results_in(file)["goals"]:
        verdict = {True: "met", False: "**missed**", None: "not measured"}[goal["is_met"]]
        limit = f"at {'most' if goal['is_upper'] else 'least'} {goal['limit']:g}"
        value = "" if goal["value"] is None else f"{goal['value']:.3g}"
        rows.append([goal["name"], limit, value, goal["where"], verdict])
    return markdown_table(rows)


def device_methods(file: Path) -> str:
    """Return equal texts, synchronisations, copies and launches of every method on a device."""
    content = results_in(file)
    rows = [["method", "dtype", "texts of plain decoding", "synchronisations a step", "copies", "launches"]]
    for row in content["methods"]:
        same = f"{row['num_same']} of {row['num_texts']}" if row["num_texts"] else "none compared"
        counts = (f"{row[name]:g}" for name in ("syncs_of_a_step", "copies", "launches"))
        rows.append([f"`{row['method']}`", row["dtype"], same, *counts])
    return markdown_table(rows)


def device_questions(file: Path) -> str:
    """Return tokens/s of methods on a device for questions to a small model."""
    content = results_in(file)
    rows = [["tree", "method", "tokens/s, two rounds", "step, ms", "steps", "of these with a draft"]]
    for row in content["questions"]:
        speeds = " and ".join(f"{speed:g}" for speed in row["tokens_per_s"])
        counts = (f"{row[name]:,}" for name in ("steps", "drafts"))
        rows.append([row["tree"], f"`{row['method']}`", speeds, f"{row['step_ms']:.2f}", *counts])
    return markdown_table(rows)


def never_slower(file: Path) -> str:
    """Return speeds over plain decoding of each method with a fixed k and with `adaptive`, by batch size."""
    content = results_in(file)
    found: dict[str, dict[tuple[int, bool], list[float]]] = {}
    for row in content["rows"]:
        if row["name"].startswith("k=") or row["name"] == "adaptive":
            cell = (row["batch_size"], row["name"] == "adaptive")
            method = found.setdefault(row["workload"].split(",")[0], {})
            method.setdefault(cell, []).append(row["times_plain"][0])
    cells = sorted({cell for method in found.values() for cell in method})
    rows = [["", *(f"batch {batch}: {'adaptive' if adapts else 'fixed k'}" for batch, adapts in cells)]]
    for name, method in found.items():
        rows.append([f"`{name}`", *(_range(method[cell]) for cell in cells)])
    adaptive = [row for row in content["rows"] if row["name"] == "adaptive"]
    near_best = sum(row["times_best"][0] >= BEST for row in adaptive)
    near_plain = sum(row["times_plain"][0] >= PLAIN for row in adaptive)
    worst = min(row["times_best"][0] for row in adaptive)
    note = (
        f"Goals of `adaptive`: {BEST} times the best fixed k, met in {near_best} of {len(adaptive)} workloads (the worst "
        f"{worst:.2f}), and {PLAIN} times plain decoding, met in {near_plain}, **missed** in {len(adaptive) - near_plain}. "
    )
    return _told(rows, content, file, note)


def _range(values: list[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def expected_tokens(file: Path) -> str:
    """Return what predictions and forced tokens gain over plain decoding."""
    content = results_in(file)
    rows = [["expected tokens", "temperature", "speed-up [95 %]", "accepted of drafted"]]
    for row in content["rows"]:
        drafted = f"{row['accepted']:,} of {row['drafted']:,}"
        speedup = ratio_text(row["speedup"], row["low"], row["high"])
        rows.append([row["name"], f"{row['temperature']:g}", speedup, drafted])
    return _told(rows, content, file)


def kernel_resources(file: Path) -> str:
    """Return what each kernel takes of each GPU: the most of all forms that it is compiled in."""
    content = results_in(file)
    taken = {(row["kernel"], row["gpu"]): row for row in content["rows"]}
    gpus = sorted({gpu for _, gpu in taken}, key=lambda gpu: int(gpu.removeprefix("sm_")))
    named = " / ".join(gpus)
    rows = [["kernel", "forms", f"registers, {named}", "spilled bytes", "shared KiB"]]
    for kernel in dict.fromkeys(kernel for kernel, _ in taken):
        each = [taken[kernel, gpu] for gpu in gpus]
        rows.append(
            [
                f"`{kernel}`",
                f"{each[0]['kernels']}",
                " / ".join(f"{row['registers']}" for row in each),
                " / ".join(f"{row['spilled_bytes']}" for row in each),
                " / ".join(f"{row['shared_bytes'] / 1024:.0f}" for row in each),
            ]
        )
    return _told(rows, content, file)


TABLES = (
    *(device_steps, device_goals, device_methods, device_questions),
    *(never_slower, expected_tokens, kernel_resources),
)
