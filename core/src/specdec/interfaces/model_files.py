"""GGUF: what a package that reads files of whole models does for core."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from specdec.interfaces.part import Part


class ModelFiles(Part):
    """Part `gguf`: finds GGUF files by the name of a model, and stores what they hold as `transformers` reads it."""

    @abstractmethod
    def local(self, name: str, file: str | None = None) -> Path | None:
        """Return the file that a path names; None for any other name.

        Args:
            name: a file, or a folder with one.
            file: the file to use in a folder.

        Raises:
            ConfigError: if there is no such file, or if there are several candidates.
            ModelError: if it is damaged.
        """

    @abstractmethod
    def on_hub(self, name: str, revision: str | None = None, file: str | None = None) -> Path | None:
        """Return the file of a hub repository, downloaded unless it is cached; None for any other name.

        Args:
            name: a repository, or a file in one.
            revision: revision on the hub.
            file: the file to use in the repository.

        Raises:
            ConfigError: if there are several candidates.
            ModelError: if it is not available.
        """

    @abstractmethod
    def stored(self, file: Path, dtype: object, *, keeps_blocks: bool = False) -> Path:
        """Return a directory with the model of a file: safetensors, `config.json` and tokenizer. It is made once and kept.

        Args:
            file: the file.
            dtype: dtype of the run, a name or a `torch.dtype`; `auto` means bfloat16.
            keeps_blocks: whether weights may stay in the blocks of the file; only `specdec_runtime` then loads the directory.

        Raises:
            ConfigError: if there is no such dtype.
            ModelError: if the file cannot be read, or the model cannot be stored.
        """
