"""Replaces vLLM's drafter with a proposer, and its rejection sampler with a specdec sampler."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from specdec import ConfigError, FinishReason
from specdec_hosting import HostedProposer
from specdec_vllm.requests import Requests
from specdec_vllm.verifier import Verifier


class Binding:
    """Functions that one vLLM model runner (`GPUModelRunner` or its CPU subclass) calls instead of its own.

    Args:
        runner: vLLM's model runner, with its target loaded and `custom_class` as its method.
        requests: the adapter's state of requests.
        hosted: the proposer; None on tensor parallel ranks other than the first, whose drafts vLLM's scheduler does not read.
        verifier: replaces the rejection sampler.
        aux_layer_ids: target layers whose inputs are provided: all that the proposer reads, maybe more.
    """

    def __init__(
        self,
        runner: Any,
        requests: Requests,
        hosted: HostedProposer | None,
        verifier: Verifier,
        aux_layer_ids: tuple[int, ...] = (),
    ) -> None:
        self._runner = runner
        self._requests = requests
        self._hosted = hosted
        self._verifier = verifier
        self._aux_layer_ids = tuple(sorted(set(aux_layer_ids)))
        self._update_states = type(runner)._update_states.__get__(runner)
        self._step_started = 0.0

    def attach(self) -> None:
        """Replace the runner's functions; the last binding attached to a runner is used."""
        runner = self._runner
        runner.propose_draft_token_ids = self.propose_draft_token_ids
        runner._update_states = self.update_states
        runner._input_fits_in_drafter = _is_last_stage
        runner.rejection_sampler = self._verifier
        if self._aux_layer_ids or runner.use_aux_hidden_state_outputs:
            runner.get_model().set_aux_hidden_state_layers(self._aux_layer_ids)
        runner.use_aux_hidden_state_outputs = bool(self._aux_layer_ids)

    def update_states(self, scheduler_output: Any) -> Any:
        """Report finished requests to the proposer, then run vLLM's own function at the start of a step."""
        self._step_started = time.perf_counter()
        for name, reason in self._requests.take(scheduler_output.finished_req_ids).items():
            if self._hosted is not None:
                self._hosted.finish([name], reason)
        return self._update_states(scheduler_output)

    def propose_draft_token_ids(
        self,
        scheduler_output: Any,
        sampled_token_ids: list[list[int]],
        sampling_metadata: Any,
        hidden_states: torch.Tensor,
        sample_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        spec_decode_metadata: Any,
        common_attn_metadata: Any,
        slot_mappings: Any,
    ) -> list[list[int]]:
        """Return the drafts of the batch, in batch order; has vLLM's signature."""
        num_requests = len(self._runner.input_batch.req_ids)
        if self._hosted is None:
            return [[] for _ in range(num_requests)]
        hosted = self._hosted
        num_prompt_rows = _num_prompt_rows(
            scheduler_output, self._runner.input_batch.req_ids, sampled_token_ids
        )
        hosted.observe_target(time.perf_counter() - self._step_started, num_prompt_rows)
        states = (hidden_states, *self._aux_states(hosted, aux_hidden_states or []))
        draft = partial(self._propose, hosted, scheduler_output, sampled_token_ids, states)
        return self._hosted.attempt(draft) or [[] for _ in range(num_requests)]

    def _aux_states(self, hosted: HostedProposer, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the auxiliary states that the proposer reads.

        Raises:
            ConfigError: if vLLM's model has not returned one for each layer that it was asked for.
        """
        if len(given) != len(self._aux_layer_ids):
            raise ConfigError(
                f"proposer {hosted.name!r} reads the auxiliary states {list(self._aux_layer_ids)}, and vLLM's model returns "
                f"{len(given)} of them: use another head"
            )
        by_layer = dict(zip(self._aux_layer_ids, given, strict=True))
        return [by_layer[layer] for layer in hosted.aux_layer_ids]

    def _propose(
        self,
        hosted: HostedProposer,
        scheduler_output: Any,
        sampled_token_ids: list[list[int]],
        states: tuple[torch.Tensor, ...],
    ) -> list[list[int]]:
        batch = self._runner.input_batch
        drafted: Mapping[str, list[int]] = scheduler_output.scheduled_spec_decode_tokens
        limit = scheduler_output.num_spec_tokens_to_schedule
        running: list[str] = []
        caps: list[int] = []
        first_row = 0
        for row, name in enumerate(batch.req_ids):
            state = self._runner.requests[name]
            num_rows = scheduler_output.num_scheduled_tokens[name]
            if state.sampling_params is not None and state.prompt_token_ids is not None:
                emitted = sampled_token_ids[row]
                num_rejected = len(drafted.get(name, ())) + 1 - len(emitted) if emitted else 0
                self._take_in(hosted, name, row, len(emitted), len(drafted.get(name, ())))
                if hosted.needs_hidden:
                    last = first_row + num_rows - num_rejected
                    rows = tuple(kind[first_row:last] for kind in states)
                    hosted.keep_states(name, state.num_computed_tokens, rows)
                running.append(name)
                has_ended = self._requests.of(name, state).ended is not None
                caps.append(limit if emitted and not has_ended else 0)
            first_row += num_rows
        draft = hosted.propose(running, caps)
        rows_of = dict(zip(running, draft.rows, strict=True))
        self._verifier.note_drafts(draft, {name: row for row, name in enumerate(running)})
        return [list(rows_of.get(name, ())) for name in batch.req_ids]

    def _take_in(
        self, hosted: HostedProposer, name: str, row: int, num_emitted: int, num_drafted: int
    ) -> None:
        """Start a new request, and commit the tokens that vLLM has appended."""
        batch, state = self._runner.input_batch, self._runner.requests[name]
        request = self._requests.of(name, state)
        tokens = batch.token_ids_cpu[row, : batch.num_tokens_no_spec[row]]
        num_before = len(tokens) - num_emitted
        if name in hosted.request_ids and hosted.num_tokens(name) not in (num_before, len(tokens)):
            hosted.finish([name], FinishReason.ABORT)  # vLLM has changed earlier tokens: restart it
        if name not in hosted.request_ids:
            prompt = np.array(tokens[: request.num_prompt_tokens])
            before = tokens[request.num_prompt_tokens : num_before].tolist()
            hosted.start(name, prompt, request.params, output_token_ids=before, seed=request.seed)
        if num_emitted and hosted.num_tokens(name) == num_before:
            emitted = tokens[num_before:].tolist()
            kept = request.until_end(emitted, num_before, self._runner.max_model_len)
            num_accepted = min(num_emitted - 1, len(kept))
            hosted.commit(name, kept, num_drafted=num_drafted, num_accepted=num_accepted)


def _num_prompt_rows(scheduler_output: Any, names: list[str], sampled_token_ids: list[list[int]]) -> int:
    """Return the number of prompt tokens of a step: all rows except, per sampling request, one token and its draft."""
    drafted = scheduler_output.scheduled_spec_decode_tokens
    others = sum(
        1 + len(drafted.get(name, ())) for name, ids in zip(names, sampled_token_ids, strict=True) if ids
    )
    return int(scheduler_output.total_num_scheduled_tokens) - others


def _is_last_stage(common_attn_metadata: Any) -> bool:
    """Return whether drafts are wanted here. vLLM's own function also returns False near the context end; caps handle that."""
    return common_attn_metadata is not None
