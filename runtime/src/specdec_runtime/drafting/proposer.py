"""The base classes of proposers that run a draft model, or a head on the target's hidden states, on a cache of its own."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from specdec import ConfigError
from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)
from specdec_runtime.drafting.drafter import Drafter, DraftModule
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.partial_draft import PartialDraft, draft_of
from specdec_runtime.drafting.reloading import ReloadingProposer
from specdec_runtime.drafting.request_rows import RequestRows
from specdec_runtime.drafting.target_rows import TargetRows
from specdec_runtime.drafting.vocabulary import DraftVocabulary, equal_vocabulary, reduced_vocabulary
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.loading import check_rope
from specdec_runtime.runner import in_inference_mode

logger = logging.getLogger("specdec")

NUM_DRAFTS = 1000
"""Drafts that are counted before the one comparison."""


class AcceptanceWatch:
    """Compares how often the first drafted token is accepted with how often the most frequent token comes next.

    A head whose files are read wrongly (other layers, another norm) still runs, and is accepted less, down to chance.

    Args:
        name: the head, for the message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: Counter[int] = Counter()
        self._num_drafts = self._num_accepted = 0

    def observe(self, batch: ProposeBatch) -> None:
        """Take in what came of the last drafts, and the tokens after prompts; warns once."""
        if self._num_drafts >= NUM_DRAFTS:
            return
        end = 0
        for row, count in enumerate(batch.counts):
            end += count
            self._num_drafts += batch.last_num_drafted[row] > 0
            self._num_accepted += batch.last_num_accepted[row] > 0
            num_answer = min(count, batch.starts[row] + count - batch.num_prompt_tokens[row])
            if num_answer > 0:
                self._counts.update(batch.new_token_ids[end - num_answer : end].tolist())
        if self._num_drafts < NUM_DRAFTS:
            return
        most, total = max(self._counts.values(), default=0), self._counts.total()
        accepted, frequent = self._num_accepted / self._num_drafts, most / max(1, total)
        if accepted < frequent:
            logger.warning(
                "%s: of %d drafts the first token was accepted in %.1f %%, and always drafting the target's most frequent "
                "token would give %.1f %%: it is a head of another target, or its files are read wrongly (specdec check-head)",
                self._name, self._num_drafts, 100 * accepted, 100 * frequent,
            )  # fmt: skip


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


class RowsProposer(ReloadingProposer):
    """Keeps rows of every request in a runner's cache, and drafts from them; a subclass defines how."""

    Config: ClassVar[type[ProposerConfig]] = DraftingConfig
    LOADED = ("_drafter", "_rows", "_runner", "_head")
    capabilities = frozenset(
        {Capability.OWN_KV, Capability.BEFORE_VERDICT, Capability.DRAFT_PROBS, Capability.TREE}
    )

    def __init__(self, config: DraftingConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._config = config
        self.capabilities = config.used(type(self).capabilities)
        self._watch: AcceptanceWatch | None = None
        """Warns if drafts are worse than chance; None where nothing is watched."""

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
        if self._lacking is not None:
            raise self.not_loaded()
        if self._watch is not None:
            self._watch.observe(batch)
        drafts = self._drafter.draft(batch)
        for row, count in enumerate(batch.counts):
            if count:
                self._rows.publish(batch, row)
        self.left_out = self._rows.left_out
        target_ids = self._drafter.vocabulary.target_ids
        return draft_of(drafts, self._config, self.target_info.device, target_ids)

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Reuse the rows of a cached prefix."""
        if self._lacking is not None:
            raise self.not_loaded()
        return self._rows.resume(request_id, token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of these requests."""
        for request_id in request_ids if self._lacking is None else ():
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


class HeadProposer(DraftingProposer):
    """Runs a head on the target's states; a subclass defines how its head is loaded."""

    Config: ClassVar[type[ProposerConfig]] = HeadConfig
    capabilities = DraftingProposer.capabilities | {Capability.HIDDEN_STATES}

    @abstractmethod
    def load_head(self, target: TargetHandle) -> DraftHead:
        """Return the head, on the target's device, in evaluation mode.

        Raises:
            ModelError: if it cannot be loaded.
            ConfigError: if it does not fit the target or the configuration.
        """

    def load_module(self, target: TargetHandle) -> DraftModule:
        """Return the head, and the ids that it can draft."""
        config, info = self.config, target.info
        assert isinstance(config, HeadConfig)
        self._watch = AcceptanceWatch(config.model or self.name)
        max_len = config.max_model_len or info.max_model_len
        self._head = head = self.load_head(target)
        check_rope(head.config, max_len, config.model or self.name)
        if config.tree_choices is not None and head.num_stages > 1:
            raise ConfigError(
                f"speculative_config: tree_choices needs a head of one stage, this one has {head.num_stages}: take tree_top_k"
            )
        if head.target_ids is None and head.num_logits >= info.vocab_size:
            vocabulary = equal_vocabulary(info.vocab_size, head.num_logits, info.device)
        else:  # heads read all of the target's ids
            ids = np.arange(head.num_logits) if head.target_ids is None else head.target_ids.cpu().numpy()
            vocabulary = reduced_vocabulary(ids, info.vocab_size, info.device)
        is_special = head.num_stages == 1 and (config.is_dynamic or config.tree_choices is not None)
        return DraftModule(
            head,
            vocabulary,
            head.num_logits,
            max_len,
            mask_id=head.mask_id if config.parallel_drafting else None,
            max_depth=config.tree_depth,
            tree=config if is_special else None,
        )
