"""The base classes of proposers that run a draft model or head on a cache of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)
from specdec_runtime.drafting.drafter import Drafter, DraftModule
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.partial_draft import PartialDraft, draft_of
from specdec_runtime.drafting.request_rows import RequestRows
from specdec_runtime.drafting.target_rows import TargetRows
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.runner import in_inference_mode


class StepDrafter(Protocol):
    """Drafts the rows of one step."""

    @property
    def rows(self) -> RequestRows | TargetRows:
        """The rows of all requests."""

    @property
    def vocabulary(self) -> DraftVocabulary:
        """The ids that may be drafted."""

    def draft(self, batch: ProposeBatch) -> list[PartialDraft | None]:
        """Process the new tokens, and return the drafts `[B]`, None for rows without one."""


class RowsProposer(Proposer):
    """Keeps rows of every request in a runner's cache, and drafts from them; a subclass defines how."""

    Config: ClassVar[type[ProposerConfig]] = DraftingConfig
    capabilities = frozenset(
        {Capability.OWN_KV, Capability.BEFORE_VERDICT, Capability.DRAFT_PROBS, Capability.TREE}
    )

    def __init__(self, config: DraftingConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._config = config
        self.capabilities = config.used(type(self).capabilities)

    @abstractmethod
    def make_drafter(self, target: TargetHandle) -> StepDrafter:
        """Load what the proposer drafts with.

        Raises:
            ModelError: if it cannot be loaded.
            ConfigError: if it does not fit the target or the configuration.
        """

    def load(self, target: TargetHandle) -> None:
        """Load the module and make its runner; raises the errors of `make_drafter`."""
        self._drafter = self.make_drafter(target)
        self._rows = self._drafter.rows

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Process the new tokens, and draft for every row that wants a draft."""
        drafts = self._drafter.draft(batch)
        for row, request_id in enumerate(batch.request_ids):
            if batch.counts[row]:
                self._rows.publish(request_id, batch.token_ids(row))
        self.left_out = self._rows.left_out
        target_ids = self._drafter.vocabulary.target_ids
        return draft_of(drafts, self._config, self.target_info.device, target_ids)

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Reuse the rows of a cached prefix."""
        return self._rows.resume(request_id, token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of these requests."""
        for request_id in request_ids:
            self._rows.drop(request_id)


class DraftingProposer(RowsProposer):
    """Processes new tokens, then drafts chains or trees from the row of each request's last token.

    A subclass loads the module. A model keeps the rows of drafted tokens that are accepted, and the next pass overwrites the
    others. A head drafts with its own states in place of the target's, so its rows are run again once tokens are committed. A
    form of the target has no rows of its own (`TARGET_CACHE` in place of `OWN_KV`).
    """

    @abstractmethod
    def load_module(self, target: TargetHandle) -> DraftModule:
        """Return what the proposer drafts with.

        Raises:
            ModelError: if it cannot be loaded.
            ConfigError: if it does not fit the target or the configuration.
        """

    def make_drafter(self, target: TargetHandle) -> Drafter:
        """See `RowsProposer.make_drafter`."""
        module = self.load_module(target)
        self._runner = module.target_runner or target.make_runner(module.module)
        return Drafter(self._config, module, self._runner, target.info, len(self.aux_layer_ids))
