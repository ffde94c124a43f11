"""The base class of proposers that load again when the target's weights change."""

from __future__ import annotations

from typing import ClassVar

from specdec.errors import ModelError, described
from specdec.interfaces import Proposer, TargetHandle


class ReloadingProposer(Proposer):
    """Lets go of all that it loaded when the target's weights change, and loads it again: its files may be new too."""

    LOADED: ClassVar[tuple[str, ...]]
    """Names of the attributes that `load` sets."""
    _lacking: str | None = None
    """Why there is nothing to draft with; None while there is."""

    def weights_changed(self, target: TargetHandle | None) -> None:
        """Let go of all that was loaded, and load it again: it may share the target's weights, and its rows are old."""
        for name in self.LOADED:
            vars(self).pop(name, None)
        self._lacking = "the target's weights are changed, or it sleeps"
        if target is None:
            return
        try:
            self.load(target)
        except Exception as error:
            self._lacking = described(error)
            raise
        self._lacking = None

    def not_loaded(self) -> ModelError:
        """Return the error to raise while there is nothing to draft with."""
        return ModelError(f"{self.name}: it does not follow the target's new weights: {self._lacking}")
