"""The manifest: shipped artefacts, their data, training and quality."""

from __future__ import annotations

import hashlib
import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specdec_train.heads.recipe import HeadRecipe
from specdec_train.loop import RunState
from specdec_train.precision import matmul_dtype
from zoo_recipe.corpus import Corpus
from zoo_recipe.draft_recipe import DraftRecipe
from zoo_recipe.prompts import Prompt
from zoo_recipe.recipe import Recipe

_LIBRARIES = ("safetensors", "tokenizers", "torch", "transformers")


def file_facts(folder: Path) -> dict[str, dict[str, Any]]:
    """SHA-256 and size of each file in a folder, by name."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def corpus_facts(corpus: Corpus) -> dict[str, Any]:
    """Origin and licence of the corpus, a digest of its files, and those that were held out."""
    lines = "".join(f"{file.split} {file.sha256} {file.path}\n" for file in corpus.files)
    return {
        "source": f"standard library of {platform.python_implementation()} {platform.python_version()}",
        "licence": "PSF-2.0",
        "heldout_files": len(corpus.split("heldout")),
        "heldout_bytes": corpus.num_bytes("heldout"),
        "train_files": len(corpus.split("train")),
        "train_bytes": corpus.num_bytes("train"),
        "sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "heldout": [file.path for file in corpus.split("heldout")],
    }


def prompt_facts(prompts: Sequence[Prompt], num_tokens: Sequence[int]) -> dict[str, Any]:
    """Number of prompts of each kind, and their lengths in tokens."""
    quartiles = statistics.quantiles(num_tokens, n=4)
    kinds = sorted({prompt.kind for prompt in prompts})
    return {
        "count": len(prompts),
        "kinds": {kind: sum(prompt.kind == kind for prompt in prompts) for kind in kinds},
        "tokens": {
            "min": min(num_tokens),
            "quartiles": [round(quartile) for quartile in quartiles],
            "max": max(num_tokens),
            "mean": round(statistics.fmean(num_tokens), 1),
        },
    }


def environment_facts() -> dict[str, Any]:
    """Date, library versions and machine type."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in _LIBRARIES},
    }


def training_facts(
    state: RunState,
    recipe: Recipe | DraftRecipe | HeadRecipe,
    tokens_per_epoch: int,
    max_minutes: float | None,
) -> dict[str, Any]:
    """Length and speed of a run."""
    tokens_seen = state.step * recipe.tokens_per_step
    return {
        "steps": state.step,
        "steps_planned": recipe.max_steps,
        "seconds": round(state.seconds),
        "seconds_allowed": None if max_minutes is None else round(max_minutes * 60),
        "tokens_seen": tokens_seen,
        "tokens_per_epoch": tokens_per_epoch,
        "epochs": round(tokens_seen / tokens_per_epoch, 2),
        "tokens_per_second": round(tokens_seen / state.seconds) if state.seconds else None,
        "threads": recipe.threads,
        "matmul_dtype": str(matmul_dtype()).removeprefix("torch."),
    }


def update_manifest(path: Path, sections: Mapping[str, Any], artefacts: Mapping[str, Any]) -> None:
    """Write sections and artefacts into a manifest; other entries are unchanged.

    Args:
        path: the manifest; created if missing.
        sections: top-level sections to replace.
        artefacts: artefacts to add or replace, by name.
    """
    manifest: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"artefacts": {}}
    manifest.update(sections)
    manifest["artefacts"].update(artefacts)
    path.write_text(_compact(_sorted(manifest)) + "\n")


def update_log(path: Path, name: str, entries: Sequence[Any]) -> None:
    """Write the loss curve of one artefact into the training log: names, then a line of numbers per point."""
    log: dict[str, list[Any]] = json.loads(path.read_text()) if path.exists() else {}
    points = [{k: v for k, v in asdict(entry).items() if v != ()} for entry in entries]
    log[name] = [[*points[0]], *([point[name] for name in points[0]] for point in points)]
    parts = [
        f"{json.dumps(key)}:[\n" + ",\n".join(_compact(entry) for entry in log[key]) + "\n]"
        for key in sorted(log)
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _compact(content: Any) -> str:
    """JSON without spaces."""
    return json.dumps(content, separators=(",", ":"))


def _sorted(manifest: dict[str, Any]) -> dict[str, Any]:
    """Sort top-level keys and artefacts into a fixed order, with the long file list last."""
    artefacts = manifest["artefacts"]
    ordered = {"artefacts": {name: artefacts[name] for name in sorted(artefacts)}}
    return ordered | {key: manifest[key] for key in ("prompts", "corpus") if key in manifest}
