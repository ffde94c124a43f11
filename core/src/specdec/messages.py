"""User-facing error messages about keys, values and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

__all__ = ["did_you_mean", "explain", "lacking", "unfilled", "unknown_key"]


def explain(error: ValidationError, what: str, model: type[BaseModel]) -> str:
    """Return a validation error with one line per problem, naming the key, its value and the remedy.

    Args:
        error: what pydantic found.
        what: what was being read, e.g. `SamplingParams`; starts every line.
        model: the class that was validated, for the list of valid keys.
    """
    problems: dict[str, list[str]] = {}
    for entry in error.errors(include_url=False):
        key, *inside = [str(part) for part in entry["loc"]] or [""]
        if entry["type"] == "extra_forbidden" and not inside:
            problems[key] = [unknown_key(key, model.model_fields)]
        elif entry["type"] == "missing" and not inside:
            problems[key] = [f"{key!r} is missing"]
        else:
            item = "".join(f"[{part}]" for part in inside if part.isdigit())
            problems.setdefault(key, []).append(f"{item} {_said(entry['msg'])}".strip())
    values = {str(e["loc"][0]): _value(e["loc"], e["input"]) for e in error.errors() if e["loc"]}
    return "\n".join(f"{what}: {_line(key, texts, values)}" for key, texts in problems.items())


def unknown_key(key: str, valid: Iterable[str]) -> str:
    """Return the message for an unknown key, with the nearest valid key and the list of all valid keys."""
    names = sorted(valid)
    return f"unknown key {key!r}{did_you_mean(key, names)} Valid keys: {', '.join(names) or 'none'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `: did you mean '...'?` for the nearest name, or a full stop if none is near."""
    nearest = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f": did you mean {nearest[0]!r}?" if nearest else "."


def unfilled(report: Mapping[str, Any], model: object) -> str | None:
    """Return which tensors of a model a checkpoint did not fill, which transformers leaves random; None if it filled all.

    Args:
        report: what `from_pretrained` returns for `output_loading_info`; tied tensors are not missing there.
        model: the model.
    """
    missing, shapes = report["missing_keys"], report["mismatched_keys"]
    if not missing and not shapes:
        return None
    if missing:
        summary = f"{len(missing)} missing, {lacking(missing, report['unexpected_keys'])}"
    else:
        name, had, wanted = min(shapes)
        summary = f"{len(shapes)} of another shape, {name} {list(had)} instead of {list(wanted)} first"
    return (
        f"of the tensors of {type(model).__name__} {summary}: config.json does not describe these weights, or they are "
        "incomplete; fetch the files again, or convert them for this class"
    )


def lacking(missing: Iterable[str], found: Iterable[str]) -> str:
    """Return the first of the tensors that a checkpoint lacks, and the name that it has instead of the first one."""
    names = sorted(missing)
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    nearest = get_close_matches(names[0], list(found), n=1, cutoff=0.6)
    return shown + (f" (nearest to the first is {nearest[0]!r})" if nearest else "")


def _value(location: tuple[int | str, ...], found: object) -> object:
    """Return the value to show, or None if the error is inside it and only a part of it is known."""
    return found if not any(isinstance(part, int) for part in location) else None


def _said(message: str) -> str:
    """Return pydantic's message with a lower-case first letter; return a validator's own message unchanged."""
    own = message.removeprefix("Value error, ")
    return own if own != message else message[0].lower() + message[1:]


def _line(key: str, texts: list[str], values: dict[str, Any]) -> str:
    if not key or texts[0].startswith(("unknown key", f"{key!r} is missing")):
        return texts[0]
    value = "" if values[key] is None else f" = {_short(values[key])}"
    joined = " or ".join(dict.fromkeys(texts))
    return f"{key!r}{value}: {joined}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
