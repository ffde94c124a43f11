"""Turns prompts and sampling parameters into requests."""

from __future__ import annotations

import itertools
import random
import secrets
import threading
from collections.abc import Mapping
from collections.abc import Sequence as Items
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from specdec import registry
from specdec.adaptive.expected_tokens import ExpectedTokens
from specdec.adaptive.row_costs import RowCosts
from specdec.config.compat import call_arguments
from specdec.config.resolve import ResolvedSpeculation, with_checked_args
from specdec.engine.request import Request
from specdec.engine.sequence import Sequence, StopChecker
from specdec.errors import ConfigError, ContextLengthError, PluginError
from specdec.frontend.adapters import Adapters
from specdec.frontend.prompts import Prompt, PromptLength, salt_of, text_and_ids
from specdec.frontend.threads import check_process
from specdec.interfaces.batch import TokenIds
from specdec.interfaces.chat import ChatTemplates
from specdec.interfaces.grammar import Grammars
from specdec.interfaces.part import Part
from specdec.interfaces.target import TargetInfo
from specdec.logits.logprobs import LogprobRecord
from specdec.logits.rules.request_rules import rules_of
from specdec.noise import SEED_BITS, signed
from specdec.sampling_params import SamplingParams
from specdec.text.detokenizer import IncrementalDetokenizer
from specdec.text.reasoning import Reasoning, ReasoningMarkers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PartType = TypeVar("PartType", bound=Part)


class InputProcessor:
    """Checks and prepares requests.

    Args:
        info: facts about the target.
        tokenizer: its tokenizer, if it has one.
        seed: seed for requests without their own seed; None means fresh noise.
        has_priorities: whether the scheduler uses priorities.
        speculation: whose methods requests may choose.
        reasoning: the markers of the model's reasoning, if they are known.
        adapters: those that requests may choose.
    """

    def __init__(
        self,
        info: TargetInfo,
        tokenizer: PreTrainedTokenizerBase | None,
        seed: int | None,
        *,
        has_priorities: bool = False,
        speculation: ResolvedSpeculation | None = None,
        reasoning: ReasoningMarkers | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        self._reasoning, self._adapters = reasoning, adapters
        self._info = info
        self._tokenizer = tokenizer
        self._random: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
        self._parts: dict[str, Part] = {}
        self._row_costs = RowCosts()
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._has_priorities, self._speculation = has_priorities, speculation
        self._length = None if tokenizer is None else PromptLength(tokenizer, info.max_model_len)
        # Fast tokenizers (the Rust library) are thread-safe.
        is_shared = getattr(tokenizer, "is_fast", False)
        self._turn: AbstractContextManager[object] = nullcontext() if is_shared else threading.Lock()

    @property
    def lora_modules(self) -> dict[str, str]:
        """The paths of the adapters that requests may choose by name."""
        return {} if self._adapters is None else self._adapters.paths

    def next_id(self) -> str:
        """Return a unique request id."""
        return f"{self._prefix}-{next(self._numbers)}"

    def conversation(self, messages: Items[Mapping[str, Any]], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a conversation as a prompt; see `ChatTemplates.prompt`. vLLM's options without effect here are left out.

        Raises:
            ConfigError: as there, and if there is no tokenizer or what applies templates is not installed.
            EngineError: in a forked process; see `check_process`.
        """
        check_process()
        if self._tokenizer is None:
            raise ConfigError("chat needs a tokenizer; pass tokenizer=")
        vllm = call_arguments("chat")
        options = {name: value for name, value in options.items() if not vllm.absorbs(name, value)}
        templates = self._part("chat_templates", ChatTemplates, "chat")
        check_length = None if self._length is None else self._length.check
        with self._turn:
            return templates.prompt(self._tokenizer, messages, options, check_length)

    def prepare(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        *,
        is_streaming: bool,
        priority: int = 0,
        client: str | None = None,
        must_fit: bool = False,
        lora_request: object = None,
    ) -> Request:
        """Return a request ready to be queued. Thread-safe.

        Args:
            request_id: the caller's id.
            prompt: text or token ids.
            params: sampling parameters.
            is_streaming: whether to output after every step, or only at the end.
            priority: lower runs first, under the scheduling policy `priority`.
            client: name of the client, for fair scheduling.
            must_fit: whether to refuse `max_tokens` that the context window has no room for, instead of ending there.
            lora_request: a `LoRARequest`, or a name in `lora_modules`; None for the target as it is.

        Raises:
            ConfigError: for a prompt or parameter that cannot be served.
            EngineError: in a forked process; see `check_process`.
        """
        check_process()
        self._check_params(params)
        params = with_checked_args(params, self._speculation)
        self._check_priority(priority)
        text, token_ids = self._tokenize(prompt, params)
        salt = salt_of(prompt)
        adapter = None if self._adapters is None else self._adapters.find(lora_request)
        if adapter is not None:  # no salt of a prompt has this character
            salt = f"{salt}\0{adapter.key}"
        self._check_ids(token_ids)
        if must_fit:
            self._check_room(len(token_ids), params.max_tokens)
        ids = np.array(token_ids, dtype=np.int32)
        seed = self._random.getrandbits(SEED_BITS) if params.seed is None else signed(params.seed)
        prediction = self._prediction(params)
        samples = [
            self._sample(request_id, index, ids, params, seed, prediction) for index in range(params.n)
        ]
        for sequence in samples:
            sequence.parent_id, sequence.priority, sequence.client = request_id, priority, client
            sequence.cache_salt, sequence.adapter = salt, adapter
        return Request(request_id, text, samples, is_streaming=is_streaming)

    def _sample(
        self,
        request_id: str,
        index: int,
        ids: TokenIds,
        params: SamplingParams,
        seed: int,
        prediction: list[int],
    ) -> Sequence:
        limit = self._info.max_model_len
        end = limit if params.max_tokens is None else min(limit, len(ids) + params.max_tokens)
        name = request_id if params.n == 1 else f"{request_id}#{index}"
        sequence = Sequence(name, ids, params, seed=seed, sample_index=index, max_num_tokens=end)
        wanted = params.structured_outputs
        grammar = None
        if wanted is not None:
            assert self._tokenizer is not None, "checked before"
            grammars = self._part("structured_outputs", Grammars, "SamplingParams: structured_outputs")
            grammar = grammars.compile(wanted, self._info, self._tokenizer)
        ends = self._end_ids(params)
        if self._reasoning is not None:
            sequence.reasoning = Reasoning(self._reasoning, params.thinking_token_budget, ids)
        limited = None if params.thinking_token_budget is None else sequence.reasoning
        sequence.rules = rules_of(params, self._tokenizer, grammar, ends, limited)
        if params.speculative is not False and (grammar or prediction or params.allowed_token_ids or limited):
            sequence.expected = ExpectedTokens(params, grammar, prediction, ends, self._row_costs, limited)
        if params.logprobs is not None:
            sequence.logprobs = LogprobRecord(
                params.logprobs, self._text(ids, params, skips=params.skip_special_tokens)
            )
        if params.prompt_logprobs is not None and index == 0:
            sequence.prompt_logprobs = LogprobRecord(
                params.prompt_logprobs, self._text(ids[:1], params, skips=True)
            )
        text = self._text(ids, params, skips=params.skip_special_tokens)
        sequence.stop_checker = StopChecker(params, self._info.eos_token_ids, text)
        return sequence

    def _part(self, name: str, kind: type[PartType], needed_by: str) -> PartType:
        """Return the part of specdec of that name, made once.

        Raises:
            ConfigError: if it is not installed; begins with `needed_by`.
        """
        if name not in self._parts:
            try:
                self._parts[name] = registry.part(name, kind)()
            except PluginError as error:
                raise ConfigError(f"{needed_by}: {error}") from error
        return cast("PartType", self._parts[name])

    def _end_ids(self, params: SamplingParams) -> set[int]:
        """Return the ids that end a sample."""
        ends = {*(() if params.is_endless else self._info.eos_token_ids), *(params.stop_token_ids or ())}
        return {token_id for token_id in ends if 0 <= token_id < self._info.vocab_size}

    def _prediction(self, params: SamplingParams) -> list[int]:
        """Return the output that the caller expects; empty for none."""
        ids = params.prediction
        if not ids:
            return []
        if isinstance(ids, str):
            if self._tokenizer is None:
                raise ConfigError(
                    "SamplingParams: a prediction of text needs a tokenizer; pass tokenizer= or token ids"
                )
            most = None if self._length is None else self._length.most_chars
            with self._turn:
                ids = list(self._tokenizer(ids[:most], add_special_tokens=False)["input_ids"])
        return ids[: self._info.max_model_len]

    def _text(
        self, prompt: TokenIds, params: SamplingParams, *, skips: bool
    ) -> IncrementalDetokenizer | None:
        """Return the text that follows a prompt; None where no text is wanted, or there is no tokenizer."""
        if self._tokenizer is None or not params.detokenize:
            return None
        return IncrementalDetokenizer(self._tokenizer, prompt.tolist(), skip_special_tokens=skips)

    def _tokenize(self, prompt: Prompt, params: SamplingParams) -> tuple[str | None, list[int]]:
        """Return a prompt as text, if it was given as text, and as token ids."""
        text, ids = text_and_ids(prompt)
        if ids is None:
            if self._tokenizer is None:
                raise ConfigError("a prompt of text needs a tokenizer; pass tokenizer= or prompt token ids")
            if params.truncate_prompt_tokens is None and self._length is not None:
                self._length.check(text or "")
            with self._turn:
                ids = list(self._tokenizer(text)["input_ids"])
        if params.truncate_prompt_tokens is not None:
            ids = ids[-self._num_kept(params.truncate_prompt_tokens, params.max_tokens) :]
        return text, ids

    def _num_kept(self, wanted: int, max_tokens: int | None) -> int:
        """Return how many of a prompt's last tokens are kept; -1 means as many as leave room for `max_tokens`."""
        if wanted != -1:
            return wanted
        room = self._info.max_model_len - (max_tokens or 1)
        if room < 1:
            raise ContextLengthError(
                f"max_tokens is {max_tokens} and max_model_len is {self._info.max_model_len}, which leaves no room for the "
                f"prompt that truncate_prompt_tokens = -1 keeps: ask for at most {self._info.max_model_len - 1} tokens"
            )
        return room

    def _check_params(self, params: object) -> None:
        if not isinstance(params, SamplingParams):
            raise ConfigError(
                f"sampling_params must be a SamplingParams, not {type(params).__name__}: {params!r}"
            )
        if self._tokenizer is None:
            for name, remedy in (
                ("stop", " or use stop_token_ids"),
                ("bad_words", ""),
                ("structured_outputs", ""),
            ):
                if getattr(params, name):
                    raise ConfigError(f"SamplingParams: {name} needs a tokenizer; pass tokenizer={remedy}")
        if params.thinking_token_budget is not None and self._reasoning is None:
            raise ConfigError(
                "SamplingParams: thinking_token_budget needs the markers of the model's reasoning: pass reasoning_config "
                "to LLM, or --reasoning-parser to the server"
            )
        for name in ("allowed_token_ids", "logit_bias", "prediction"):
            if isinstance(getattr(params, name), str):
                continue
            outside = [i for i in getattr(params, name) or () if not 0 <= i < self._info.vocab_size]
            if outside:
                raise ConfigError(
                    f"SamplingParams: {name} has id {outside[0]}, outside the vocabulary of {self._info.vocab_size}"
                )

    def _check_priority(self, priority: int) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ConfigError(f"priority = {priority!r} must be an integer; lower goes first")
        if priority and not self._has_priorities:
            raise ConfigError(
                f"priority = {priority} has no effect under the scheduling policy 'fcfs': leave it out, or set "
                "scheduling_policy='priority'"
            )

    def _check_ids(self, ids: list[int]) -> None:
        if not ids:
            raise ConfigError("the prompt has no tokens; give at least one")
        limit = self._info.max_model_len
        if len(ids) >= limit:
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens and max_model_len is {limit}, which leaves no room for output: shorten it "
                "or set truncate_prompt_tokens"
            )
        lowest, highest = min(ids), max(ids)
        if lowest < 0 or highest >= self._info.vocab_size:
            wrong = lowest if lowest < 0 else highest
            raise ConfigError(f"prompt token id {wrong} is outside the vocabulary of {self._info.vocab_size}")

    def _check_room(self, num_prompt_tokens: int, max_tokens: int | None) -> None:
        limit = self._info.max_model_len
        if max_tokens is not None and num_prompt_tokens + max_tokens > limit:
            raise ContextLengthError(
                f"the prompt has {num_prompt_tokens} tokens, max_tokens is {max_tokens} and max_model_len is {limit}: shorten "
                f"the prompt, or ask for at most {limit - num_prompt_tokens} tokens"
            )
