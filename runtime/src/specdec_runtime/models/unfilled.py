"""Which tensors of a model a checkpoint did not fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


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
        summary = f"{len(missing)} missing, {_lacking(missing, report['unexpected_keys'])}"
    else:
        name, had, wanted = min(shapes)
        summary = f"{len(shapes)} of another shape, {name} {list(had)} instead of {list(wanted)} first"
    return (
        f"of the tensors of {type(model).__name__} {summary}: config.json does not describe these weights, or they are "
        "incomplete; fetch the files again, or convert them for this class"
    )


def _lacking(missing: Iterable[str], found: Iterable[str]) -> str:
    """Return the first of the tensors that a checkpoint lacks, and the name that it has instead of the first one."""
    names = sorted(missing)
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    nearest = get_close_matches(names[0], list(found), n=1, cutoff=0.6)
    return shown + (f" (nearest to the first is {nearest[0]!r})" if nearest else "")
