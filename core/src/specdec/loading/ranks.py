"""How a model is loaded whose weights are split over processes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from specdec.interfaces.part import Part

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class SplitLoading(Part):
    """The loading side of part `tensor_parallel`; see `specdec.engine.TensorParallel`."""

    @abstractmethod
    def load_arguments(self, config: PretrainedConfig, name: str, size: int) -> dict[str, Any]:
        """Return arguments of `from_pretrained` that load this rank's part of a model.

        Args:
            config: the model's configuration.
            name: path or hub id, for messages.
            size: number of ranks.

        Raises:
            ModelError: if the model cannot be split over that many ranks.
        """
