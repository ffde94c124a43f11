"""A draft model for `llama_cpp.Llama` that uses a specdec proposer."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from specdec import Capability, ConfigError, FinishReason
from specdec.config import parse_speculative_config
from specdec.metrics import Metric
from specdec_hosting import HostedProposer, HostTarget, open_proposer, resolve_for_host
from specdec_llama_cpp.host import HostFacts, facts_of_caller

Ids = npt.NDArray[np.intc]
_HOST = "llama-cpp-python"
_REQUEST = "llama"
_OF_TARGET = {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}
_NOTHING: Ids = np.empty(0, np.intc)


class Drafter:
    """The `draft_model` of one `Llama`, with the interface of `llama_cpp.llama_speculative.LlamaDraftModel`.

    `Llama` verifies, so the output is the same as without drafts. It passes all ids of a text in every call; accepted tokens
    are found by comparison with the previous call. Another text, or more new tokens than one step can emit, starts a new
    request. An exception of the proposer, a slow call or an id outside the vocabulary costs the drafts of one step.

    Args:
        speculative_config: a mapping, JSON or YAML text, or the path of a file with either, as for `specdec.LLM`; for any
            method that needs only token ids, or runs its own model with the target's vocabulary.
        vocab_size: number of the target's logits; None takes the value of the first calling `Llama`.
        max_model_len: longest context, in tokens; None likewise.
        tokenizer: the target's `transformers` tokenizer, to compare with a draft model's; None treats equal sizes as equal
            vocabularies.

    Raises:
        ConfigError: for an invalid configuration, or one that needs what llama.cpp does not provide, such as hidden states; the
            latter at the first call if `vocab_size` or `max_model_len` is not given.
        PluginError: for a method that is not installed or cannot be loaded.
        ModelError: for a draft that cannot be loaded, likewise at the first call.
    """

    def __init__(
        self,
        speculative_config: Any,
        *,
        vocab_size: int | None = None,
        max_model_len: int | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        if parse_speculative_config(speculative_config) is None:
            raise ConfigError(f"speculative_config: {_HOST} needs one that names a method")
        self._config = speculative_config
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._tokenizer = tokenizer
        self._hosted: HostedProposer | None = None
        self._known = _NOTHING
        self._draft: tuple[int, ...] = ()
        self._returned = 0.0
        if vocab_size is not None and max_model_len is not None:
            self._hosted = self._open(HostFacts(vocab_size, max_model_len))

    def __call__(self, input_ids: Ids, /, **kwargs: Any) -> Ids:
        """Return a draft `[0..num_speculative_tokens]` of the tokens after `input_ids` `[N]`."""
        called = time.perf_counter()
        hosted = self._hosted
        if hosted is None:
            facts = facts_of_caller(sys._getframe(1))
            if facts is None:
                raise ConfigError(
                    "Drafter: the caller is not a llama_cpp.Llama, so vocab_size and max_model_len are not known: pass both"
                )
            hosted = self._hosted = self._open(facts)
        ids = np.array(input_ids, dtype=np.intc)  # a copy: the array is the target's own memory
        if self._continues_text(ids):
            hosted.observe_target(called - self._returned)
            self._commit(hosted, ids[len(self._known) :].tolist())
        else:
            hosted.finish([_REQUEST], FinishReason.STOP)
            hosted.start(_REQUEST, ids)
        self._known = ids
        rows = hosted.propose([_REQUEST]).rows
        assert rows is not None
        self._draft = tuple(rows[0])
        self._returned = time.perf_counter()
        return np.array(self._draft, dtype=np.intc)

    def metrics(self) -> list[Metric]:
        """Return drafts, drafted and accepted tokens and the proposer's errors, under the names of `LLM.get_metrics`."""
        return [] if self._hosted is None else self._hosted.metrics()

    def counters(self) -> dict[str, int | float | list[int]]:
        """Return the values of `metrics` by name."""
        return {} if self._hosted is None else self._hosted.counters()

    def finish(self) -> None:
        """End the text, so that proposers learn from it now instead of at the start of the next text."""
        if self._hosted is not None:
            self._hosted.finish([_REQUEST], FinishReason.STOP)
        self._known, self._draft = _NOTHING, ()

    def _open(self, facts: HostFacts) -> HostedProposer:
        target = HostTarget(
            vocab_size=self._vocab_size or facts.vocab_size,
            max_model_len=self._max_model_len or facts.max_model_len,
            eos_token_ids=facts.eos_token_ids,
            tokenizer=self._tokenizer,
        )
        speculation = resolve_for_host(self._config, target, host=_HOST)
        try:
            return open_proposer(speculation, target, host=_HOST)
        except ConfigError as error:
            if not speculation.proposer_class.capabilities & _OF_TARGET:
                raise
            raise ConfigError(
                f"speculative_config: {speculation.config.method!r} needs hidden states of the target, which {_HOST} does not "
                f"provide: use a method that needs token ids only ({error})"
            ) from None

    def _continues_text(self, ids: Ids) -> bool:
        """Return whether `ids` extend the last call's by as many tokens as one step can emit."""
        num_new = len(ids) - len(self._known)
        return (
            len(self._known) > 0
            and 0 < num_new <= len(self._draft) + 1
            and np.array_equal(ids[: len(self._known)], self._known)
        )

    def _commit(self, hosted: HostedProposer, new: list[int]) -> None:
        num_accepted = 0
        while num_accepted < len(new) - 1 and new[num_accepted] == self._draft[num_accepted]:
            num_accepted += 1
        hosted.commit(_REQUEST, new, num_drafted=len(self._draft), num_accepted=num_accepted)
