"""Base of this package's proposers: drafts from hidden states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch

from specdec import ConfigError
from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    NeedsTokens,
    ProposeBatch,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)
from specdec_plugin_mlp.config import StateHeadsConfig
from specdec_plugin_mlp.heads import Heads
from specdec_runtime.backends import speed_up_linears
from specdec_runtime.drafting import (
    ChainGrowth,
    ChainSteps,
    Chooser,
    DraftVocabulary,
    HeadCheckpoint,
    LastStates,
    PartialDraft,
    ReloadingProposer,
    draft_of,
)
from specdec_runtime.runner import in_inference_mode


class StateHeadsProposer(ReloadingProposer):
    """Runs heads on the state that chose the last committed token, depth by depth, for all requests together.

    Only this state is kept per request; a request without it gets no draft.
    """

    Config: ClassVar[type[ProposerConfig]] = StateHeadsConfig
    LOADED = ("_heads", "_vocabulary", "_chooser", "_chains", "_steps")
    capabilities = frozenset(
        {Capability.HIDDEN_STATES, Capability.BEFORE_VERDICT, Capability.DRAFT_PROBS, Capability.TREE}
    )

    def __init__(self, config: StateHeadsConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._config = config
        self.capabilities = config.used(type(self).capabilities)
        self._max_len = config.max_model_len or target.max_model_len
        self._states = LastStates()

    @abstractmethod
    def read(self, checkpoint: HeadCheckpoint) -> tuple[Heads, DraftVocabulary]:
        """Return the heads of a checkpoint, on the target's device and in its dtype, and the ids they can draft.

        Raises:
            ModelError: if the checkpoint is damaged or of another kind.
            ConfigError: if it was made for another target.
        """

    def load(self, target: TargetHandle) -> None:
        """Load the heads.

        Raises:
            ModelError: if the checkpoint is damaged or of another kind.
            ConfigError: if it was made for another target, or if more tokens are requested than the heads can draft.
        """
        config = self._config
        assert config.model is not None
        self._heads, self._vocabulary = self.read(HeadCheckpoint(config.model, config.revision))
        if isinstance(self._heads, torch.nn.Module):
            speed_up_linears(self._heads)
        most = self._heads.num_heads * config.tree_top_k
        if config.num_speculative_tokens > most:
            siblings = "" if config.tree_top_k == 1 else f", {config.tree_top_k} tokens each ('tree_top_k')"
            raise ConfigError(
                f"speculative_config: 'num_speculative_tokens' = {config.num_speculative_tokens} is more than the "
                f"{self._heads.num_heads} heads of {config.model} can guess{siblings}: use {most} or less"
            )
        self._chooser = Chooser(
            config.draft_sample_method, self._vocabulary, wants_confidence=config.has_confidence
        )
        threshold = config.draft_confidence_threshold
        self._chains = ChainGrowth(self._chooser, threshold, target.info.eos_token_ids)
        self._steps = ChainSteps(
            config, self._vocabulary, self._vocabulary.num_ids, target.info, target.pass_memory
        )
        state = torch.empty(target.info.hidden_size, dtype=target.info.dtype, device=target.info.device)
        self._steps.prepare(self._heads, state, self._heads.num_heads)

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Store the new states and draft for every row that wants a draft and has a state."""
        if self._lacking is not None:
            raise self.not_loaded()
        if not batch.num_unread:
            self._states.take_in(batch)
        drafts = [self._begin(batch, row) for row in range(batch.batch_size)]
        wanted = [draft for draft in drafts if draft is not None]
        if batch.num_unread:  # the loop finds the states where the verdict is
            if not self._steps.draft(batch, wanted, ()):
                raise NeedsTokens
        elif wanted:
            self._grow(batch, wanted)
        return draft_of(drafts, self._config, self.target_info.device, self._vocabulary.target_ids)

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Accept any prefix: only the state that chose the last token is needed, and it is delivered with later tokens."""
        return len(token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the states of these requests."""
        for request_id in request_ids:
            self._states.drop(request_id)

    def _begin(self, batch: ProposeBatch, row: int) -> PartialDraft | None:
        """Return the empty draft of a row, or None if nothing can or should be drafted for it."""
        width, num_tokens = self._config.tree_top_k, batch.num_tokens[row]
        if batch.num_unread:
            num_tokens += batch.num_unread[row]
        depth = min(
            -(-batch.max_nodes[row] // width),
            self._heads.num_heads,
            self._max_len - num_tokens,
        )
        has_state = batch.num_unread or self._states.has(batch.request_ids[row], num_tokens)
        if depth <= 0 or not has_state:
            return None
        return PartialDraft(row, batch.max_nodes[row], depth, width)

    def _grow(self, batch: ProposeBatch, drafts: list[PartialDraft]) -> None:
        """Draft one depth after another, each with the head of that depth."""
        known = self._states.of([batch.request_ids[draft.row] for draft in drafts])
        if not self._steps.draft(batch, drafts, known):
            self._chains.by_steps(batch, drafts, self._heads, torch.stack(known))
