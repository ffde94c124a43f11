"""Writes a head as its exporter does, and the exporter's logits beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from exporter_heads.inputs import Inputs
from exporter_heads.references import Exported, ExportedBlock, ExportedChain

MOST_BYTES = 20_000
"""The largest file."""


@dataclass(frozen=True)
class Head:
    """A head that an exporter has made.

    Args:
        name: folder below that of the fixtures.
        method: method that it is for.
        exported: computes its logits.
        save: writes it to a folder as the exporter does, in bfloat16; called last.
        mask: mask token and its feature, of heads that guess all tokens at once.
        keys: keys of `speculative_config` that its files leave open.
    """

    name: str
    method: str
    exported: Exported
    save: Callable[[Path], None]
    mask: tuple[int, Tensor] | None = None
    keys: dict[str, Any] = field(default_factory=dict)


def write(head: Head, folder: Path, inputs: Inputs) -> None:
    """Write `config.json` and `model.safetensors` as the exporter does, and `expected.safetensors` with its logits.

    Args:
        head: the head.
        folder: folder of the fixtures.
        inputs: what it reads.
    """
    exported = head.exported
    tensors = {"logits": torch.stack([exported.logits(row, inputs) for row in inputs.rows]).contiguous()}
    if head.mask is not None:
        assert isinstance(exported, ExportedChain)
        tensors["at_once"] = torch.stack([exported.at_once(row, inputs, *head.mask) for row in inputs.rows])
    if isinstance(exported, ExportedBlock):
        confidences = [exported.confidence(row, inputs) for row in inputs.rows]
        tensors |= (
            {"confidence": torch.stack([c for c in confidences if c is not None])}
            if confidences[0] is not None
            else {}
        )
    drafted = tensors["logits"][tensors["logits"] > -torch.inf]
    spread = float(drafted.std())
    assert drafted.isfinite().all(), head.name
    assert spread > 0.3, f"{head.name}: logits are within {spread}"
    out = folder / head.name
    for file in out.glob("*.safetensors"):  # equal files are links to one of them, which is not written to
        file.unlink()
    head.save(out)
    save_file(tensors, out / "expected.safetensors")
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    (out / "config.json").write_text(json.dumps(config, separators=(",", ":")), encoding="utf-8")
    for file in sorted(out.iterdir()):
        if file.name not in ("config.json", "model.safetensors", "expected.safetensors"):
            file.unlink()
        elif file.stat().st_size > MOST_BYTES:
            raise ValueError(f"{file} has {file.stat().st_size} bytes")


def write_all(heads: Iterable[Head], folder: Path, inputs: Inputs) -> None:
    """Write heads, and list them in `heads.json`."""
    file = folder / "heads.json"
    listed: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for head in heads:
        write(head, folder, inputs)
        listed[head.name] = {"method": head.method, "layers": head.exported.layers, **head.keys}
        print(head.name, sum(path.stat().st_size for path in (folder / head.name).iterdir()), "bytes")
    lines = ",\n".join(f' "{name}": {json.dumps(listed[name])}' for name in sorted(listed))
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
