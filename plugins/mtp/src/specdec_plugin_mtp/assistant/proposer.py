"""The proposer that drafts with an assistant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

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
from specdec_plugin_mtp.assistant.assistant import AssistantSteps
from specdec_plugin_mtp.assistant.loading import load_assistant
from specdec_plugin_mtp.config import MtpConfig
from specdec_runtime.drafting import (
    AcceptanceWatch,
    ChainGrowth,
    Chooser,
    HeadCheckpoint,
    LastStates,
    PartialDraft,
    ReloadingProposer,
    draft_of,
    equal_vocabulary,
)
from specdec_runtime.runner import in_inference_mode, threads_for


class AssistantProposer(ReloadingProposer):
    """Multi-token prediction by Gemma 4's assistants, which have no cache: they query the target's.

    Of a request only the state that predicted its last token is kept; a request without it gets no draft.
    """

    name: ClassVar[str] = "mtp"
    Config: ClassVar[type[ProposerConfig]] = MtpConfig
    LOADED = ("_assistant",)
    capabilities = frozenset({Capability.HIDDEN_STATES, Capability.TARGET_CACHE, Capability.DRAFT_PROBS})

    def __init__(self, config: MtpConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        if config.is_tree:
            raise ConfigError(
                "speculative_config: 'mtp' with an assistant drafts chains: leave tree_top_k and tree_choices out"
            )
        self._config = config
        self.capabilities = config.used(type(self).capabilities)
        self._max_len = config.max_model_len or target.max_model_len
        self._vocabulary = equal_vocabulary(target.vocab_size, target.vocab_size, target.device)
        chooser = Chooser(
            config.draft_sample_method, self._vocabulary, wants_confidence=config.has_confidence
        )
        self._chains = ChainGrowth(chooser, config.draft_confidence_threshold, target.eos_token_ids)
        self._watch = AcceptanceWatch(config.model or self.name)
        self._states = LastStates()

    def load(self, target: TargetHandle) -> None:
        """Load the assistant; see `load_assistant`."""
        assert self._config.model is not None
        checkpoint = HeadCheckpoint(self._config.model, self._config.revision)
        self._assistant = load_assistant(checkpoint, target, self._max_len)

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Keep the new states, and draft for every row that wants a draft and has a state."""
        if self._lacking is not None:
            raise self.not_loaded()
        self._watch.observe(batch)
        self._states.take_in(batch)
        drafts = [self._begin(batch, row) for row in range(batch.batch_size)]
        wanted = [draft for draft in drafts if draft is not None]
        if wanted:
            num_tokens = [batch.num_tokens[draft.row] for draft in wanted]
            first_slots = [batch.first_slots[draft.row] for draft in wanted]
            rows = self._assistant.read(first_slots, [count - 1 for count in num_tokens])
            steps = AssistantSteps(self._assistant, rows, num_tokens)
            known = self._states.of([batch.request_ids[draft.row] for draft in wanted])
            with threads_for(self.target_info.device, len(wanted) * self._assistant.num_weights):
                self._chains.by_steps(batch, wanted, steps, torch.stack(known))
        return draft_of(drafts, self._config, self.target_info.device, self._vocabulary.target_ids)

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Accept any prefix: only the state that predicted the last token is needed, and it is delivered with later tokens."""
        return len(token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the states of these requests."""
        for request_id in request_ids:
            self._states.drop(request_id)

    def _begin(self, batch: ProposeBatch, row: int) -> PartialDraft | None:
        """Return the empty draft of a row, or None if nothing can or should be drafted for it."""
        most, num_tokens = batch.max_nodes[row], batch.num_tokens[row]
        depth = min(most, self._max_len - num_tokens)
        if depth <= 0 or not self._states.has(batch.request_ids[row], num_tokens):
            return None
        return PartialDraft(row, most, depth)
