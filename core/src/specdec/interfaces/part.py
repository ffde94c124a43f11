"""A part of specdec in a package of its own, which core asks for by name (entry-point group `specdec.parts`)."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar


class Part(ABC):
    """What a package does for core where it is installed. Its constructor takes no arguments.

    Core asks for fixed names. Another package may provide a part of the same name; `SPECDEC_PLUGINS` then says which is used.
    """

    name: ClassVar[str]
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for; see `Proposer.api_version`."""
