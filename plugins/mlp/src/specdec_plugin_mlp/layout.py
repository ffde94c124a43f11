"""Base for reading the `config.json` of heads."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from specdec import ConfigError, ModelError
from specdec.interfaces import TargetInfo
from specdec_runtime.drafting import HeadCheckpoint


class Layout(BaseModel):
    """Base of layouts read from a `config.json`; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def read(cls, checkpoint: HeadCheckpoint, found: dict[str, Any] | None = None) -> Self:
        """Read a checkpoint's configuration.

        Args:
            checkpoint: the checkpoint.
            found: its configuration with old key names replaced; None for the stored one.

        Raises:
            ModelError: naming the invalid key and its value.
        """
        try:
            return cls(**(checkpoint.config if found is None else found))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = first["loc"][0] if first["loc"] else ""
            value = f"{key!r} = {first['input']!r}: " if key else ""
            raise ModelError(
                f"{checkpoint.directory / 'config.json'}: {value}{first['msg'].removeprefix('Value error, ')}: fetch it again, "
                "or correct the value"
            ) from None


def check_count(checkpoint: HeadCheckpoint, key: str, count: int) -> None:
    """Refuse more heads or layers than there are tensors, before they are made.

    Raises:
        ModelError: naming the key and its value.
    """
    held = len(checkpoint.names())
    if count > held:
        raise ModelError(
            f"{checkpoint.directory}: {key} is {count}, and there are {held} tensors: its config.json does not belong to these "
            "weights"
        )


def check_target(path: str, target: TargetInfo, *, vocab_size: int, hidden_size: int) -> None:
    """Reject heads that were made for another target.

    Args:
        path: path of the heads, for messages.
        target: the target.
        vocab_size: vocabulary size of the heads.
        hidden_size: size of the states they read.

    Raises:
        ConfigError: with both sizes.
    """
    if hidden_size != target.hidden_size:
        raise ConfigError(
            f"speculative_config: 'model': {path} was made for hidden states of size {hidden_size}, those of the target have "
            f"{target.hidden_size}: take the heads that were trained for this target"
        )
    if vocab_size != target.vocab_size:
        raise ConfigError(
            f"speculative_config: 'model': {path} has a vocabulary of {vocab_size} ids, the target one of {target.vocab_size}: "
            "take the heads that were trained for this target"
        )
