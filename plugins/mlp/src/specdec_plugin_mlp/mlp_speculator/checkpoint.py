"""Reads and writes MLP speculators in the published format of IBM's accelerators."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from specdec import ModelError
from specdec_plugin_mlp.layout import check_count
from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout
from specdec_plugin_mlp.mlp_speculator.model import MLPSpeculator
from specdec_plugin_mlp.unused import warn_of_unused
from specdec_runtime.drafting import HeadCheckpoint

PREFIX = "speculator."
"""Tensor name prefix in published checkpoints; older ones have none."""


def load_mlp_speculator(
    checkpoint: HeadCheckpoint,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> MLPSpeculator:
    """Return the heads of a checkpoint, frozen and in evaluation mode.

    Args:
        checkpoint: `config.json` and tensors `emb.i.weight` `[V, D]`, `proj.0.weight` `[D, H]`, `proj.i.weight` `[D, D]`,
            `ln.i.weight` and `ln.i.bias` `[D]`, `head.i.weight` `[V, D]`, with or without the prefix `speculator.`. For tied
            heads one copy is enough.
        dtype: dtype of the weights; None for the stored one.
        device: device of the weights.

    Raises:
        ModelError: naming the file or tensor that is missing, damaged or of another shape.
    """
    layout = MLPSpeculatorLayout.read(checkpoint)
    if not layout.tie_weights:
        check_count(checkpoint, "n_predict", layout.n_predict)
    with torch.device("meta"):
        heads = MLPSpeculator(layout)
    prefix = PREFIX if any(name.startswith(PREFIX) for name in checkpoint.names()) else ""
    wanted = {name: tuple(tensor.shape) for name, tensor in heads.state_dict().items()}
    read: dict[str, torch.Tensor] = {}
    for name in dict(heads.named_parameters()):
        # Tied parameters are listed once; a checkpoint may store them under any or all of their names.
        copies = _names_of(name, layout)
        stored = [copy for copy in copies if checkpoint.has(prefix + copy)] or copies[:1]
        tensor = checkpoint.read(prefix + stored[0], wanted[name])
        for other in stored[1:]:
            if not torch.equal(tensor, checkpoint.read(prefix + other, wanted[name])):
                raise ModelError(
                    f"{checkpoint.directory}: config.json has tie_weights = true, but tensors {stored[0]!r} and {other!r} "
                    "differ: set it to false"
                )
        tensor = tensor.to(device, dtype)
        read |= dict.fromkeys(copies, tensor)
    warn_of_unused(checkpoint, {prefix + name for name in read})
    heads.load_state_dict(read, assign=True)
    return heads.requires_grad_(False).eval()


def save_mlp_speculator(heads: MLPSpeculator, directory: str | Path) -> None:
    """Write `config.json` and `model.safetensors` in the published format, creating the directory if necessary.

    Args:
        heads: the heads, in the dtype to store.
        directory: output directory; files of these names are overwritten.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = dict(heads.named_parameters())
    config = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        **heads.layout.model_dump(),
        # Not used here; other engines need an entry for each head.
        "n_candidates": 5,
        "top_k_tokens_per_head": [max(5 - index, 1) for index in range(heads.num_heads)],
        "torch_dtype": str(next(iter(parameters.values())).dtype).removeprefix("torch."),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {PREFIX + name: tensor.detach().cpu().contiguous() for name, tensor in parameters.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _names_of(name: str, layout: MLPSpeculatorLayout) -> list[str]:
    """Return all names of a parameter among tied heads, `name` first."""
    module, index, rest = name.split(".")
    first = 1 if module == "proj" else 0
    if not layout.tie_weights or int(index) < first:
        return [name]
    return [f"{module}.{i}.{rest}" for i in range(first, layout.n_predict)]
