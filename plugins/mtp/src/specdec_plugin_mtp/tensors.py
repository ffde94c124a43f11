"""The tensors of a checkpoint, with user-facing errors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from safetensors import SafetensorError

from specdec import ModelError
from specdec.interfaces import CheckpointReader
from specdec_runtime.drafting import HeadCheckpoint

_QUANTISED = ("_scale_inv", ".weight_scale", ".qweight", ".weight_packed")


class MtpTensors:
    """Reads tensors and tracks which ones were read.

    Args:
        reader: reader of the target's checkpoint, or of a directory that holds only the layers.
        place: location named in errors.
    """

    def __init__(self, reader: CheckpointReader | HeadCheckpoint, place: str) -> None:
        self._reader, self.place = reader, place
        try:
            self.names = frozenset(reader.names())
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"{place}: the names of its tensors cannot be read ({error})") from None
        self._read: set[str] = set()

    def read(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return one tensor, on the CPU and in its stored dtype.

        Raises:
            ModelError: if it is missing, has another shape, or is damaged.
        """
        if name not in self.names:
            raise ModelError(
                f"{self.place} has no tensor {name!r}: its multi-token-prediction layers are incomplete, or not of the kind "
                "that its config.json describes"
            )
        try:
            tensor = self._reader.read(name)
        except (OSError, KeyError, SafetensorError) as error:
            raise ModelError(f"{self.place}: tensor {name!r} cannot be read ({error})") from None
        if tuple(tensor.shape) != tuple(shape):
            raise ModelError(
                f"{self.place}: tensor {name!r} has shape {list(tensor.shape)} instead of {list(shape)}: config.json does not "
                "belong to these weights"
            )
        self._read.add(name)
        return tensor

    def has_any(self, prefix: str) -> bool:
        """Return whether any tensor name starts with `prefix`."""
        return any(name.startswith(prefix) for name in self.names)

    def check(self, prefixes: Sequence[str]) -> None:
        """Raise for tensors of quantised layers, which are not supported.

        Raises:
            ModelError: naming one of these tensors.
        """
        wrong = [name for name in self._under(prefixes) if any(mark in name for mark in _QUANTISED)]
        if wrong:
            raise ModelError(
                f"{self.place}: the multi-token-prediction layers are quantised ({wrong[0]}), and only ordinary weights are "
                "read: give 'model', a directory with these layers in bfloat16"
            )

    def check_all_read(self, prefixes: Sequence[str]) -> None:
        """Raise for unread tensors, because they would change the computation in an unknown way.

        Raises:
            ModelError: naming one of them.
        """
        unused = [
            name
            for name in self._under(prefixes)
            if name not in self._read and not name.endswith("rotary_emb.inv_freq")
        ]
        if unused:
            raise ModelError(
                f"{self.place}: tensor {unused[0]!r} has no place in layers of this kind: config.json does not belong to these "
                "weights, or this variety of multi-token prediction is not known here"
            )

    def _under(self, prefixes: Sequence[str]) -> list[str]:
        return sorted(name for name in self.names if name.startswith(tuple(prefixes)))
