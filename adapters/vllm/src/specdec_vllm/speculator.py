"""A proposer in vLLM's newer model runner (`vllm/v1/worker/gpu`). Written against its signatures, not run: needs a GPU."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from specdec import ConfigError
from specdec_hosting import HostedProposer
from specdec_vllm.drafting import Drafting, Rows
from specdec_vllm.requests import Request, Requests

if TYPE_CHECKING:

    class BaseSpeculator:
        """Stub of vLLM's class for type checking."""

else:
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator


class Speculator(BaseSpeculator):
    """Replaces one of vLLM's speculators; vLLM's own rejection sampler verifies.

    Draft rows are always k wide, so a short draft is padded with the last token, which is then verified like any other.
    Tokens and lengths are read from the device in every step, which synchronises with it.

    Args:
        drafting: the proposer; None on tensor parallel ranks other than the first.
        runner: vLLM's model runner with `method="ngram_gpu"`, which keeps all token ids accessible.
        requests: the adapter's state of requests.
        broadcast: broadcasts the first rank's drafts to all ranks, in place; None with one rank.
    """

    supports_mm_inputs = False
    draft_logits = None
    draft_token_confidence_probs = None

    def __init__(
        self, drafting: Drafting | None, runner: Any, requests: Requests, broadcast: Any = None
    ) -> None:
        if drafting is not None and drafting.hosted.aux_layer_ids:
            raise ConfigError(
                f"proposer {drafting.hosted.name!r} reads auxiliary layers, which vLLM's newer model runner gives only to its "
                "own methods: set VLLM_USE_V2_MODEL_RUNNER=0"
            )
        if drafting is not None and drafting.hosted.resolved.config.adaptive:
            raise ConfigError(
                "'adaptive' has no effect in vLLM's newer model runner, where drafts are always filled up to k tokens: "
                "leave it out, or set VLLM_USE_V2_MODEL_RUNNER=0"
            )
        self._drafting = drafting
        self._runner = runner
        self._requests = requests
        self._broadcast = broadcast
        self._step_started = 0.0
        self.num_speculative_steps: int = runner.num_speculative_steps

    def attach(self) -> None:
        """Replace the runner's speculator, and hook into adding and finishing of requests."""
        runner = self._runner
        self._add, self._finish = runner.add_requests, runner.finish_requests
        runner.add_requests, runner.finish_requests = self.add_requests, self.finish_requests
        runner.speculator = self

    def add_requests(self, scheduler_output: Any) -> None:
        """Record the sampling parameters of new requests, then run vLLM's own function."""
        for new in scheduler_output.scheduled_new_reqs:
            if new.sampling_params is not None:
                self._requests.of(new.req_id, _State(new.sampling_params, new.prompt_len))
        self._add(scheduler_output)

    def finish_requests(self, scheduler_output: Any) -> None:
        """Report finished requests to the proposer, then run vLLM's own function; called at the start of a step."""
        self._step_started = time.perf_counter()
        for name, reason in self._requests.take(scheduler_output.finished_req_ids).items():
            if self._drafting is not None:
                self._drafting.hosted.finish([name], reason)
        self._finish(scheduler_output)

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Do nothing: vLLM's CUDA graphs are not used."""

    def capture(self) -> None:
        """Do nothing, likewise."""

    def prepare_watermarking(self, *_: Any) -> None:
        """Do nothing: tokens are drafted without a watermark."""

    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        dp_sync_state: Any = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        mm_inputs: Any = None,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
    ) -> torch.Tensor:
        """Return drafts `[num_reqs, k]` int64 on the device; has vLLM's signature."""
        width = self.num_speculative_steps
        drafts = last_sampled[input_batch.idx_mapping][:, :1].to(torch.int64).repeat(1, width)
        if dummy_run or is_profile:
            return drafts
        if self._drafting is not None:
            draft = partial(
                self._rows,
                self._drafting.hosted,
                input_batch,
                last_hidden_states,
                num_sampled.tolist(),
                num_rejected.tolist(),
                num_speculative_tokens,
            )
            for row, ids in enumerate(self._drafting.rows(input_batch.num_reqs, draft)):
                if ids:
                    drafts[row, : len(ids)] = torch.tensor(ids, device=drafts.device)
        if self._broadcast is not None:
            self._broadcast(drafts)
        return drafts

    def _rows(
        self,
        hosted: HostedProposer,
        batch: Any,
        states: torch.Tensor,
        num_sampled: list[int],
        num_rejected: list[int],
        limit: int | None,
    ) -> Rows:
        hosted.observe_target(time.perf_counter() - self._step_started)
        held = self._runner.req_states
        lengths = held.total_len.gpu[batch.idx_mapping].tolist()
        running, caps = [], []
        for row, name in enumerate(batch.req_ids[: batch.num_reqs]):
            request = self._requests.held.get(name)
            if request is None:
                continue
            index = int(batch.idx_mapping_np[row])
            num_drafted = (
                0 if batch.num_draft_tokens_per_req is None else int(batch.num_draft_tokens_per_req[row])
            )
            tokens = held.all_token_ids.gpu[index]
            self._take_in(hosted, name, request, tokens, lengths[row], num_sampled[row], num_drafted)
            if hosted.needs_hidden:
                first, last = (int(at) for at in batch.query_start_loc_np[row : row + 2])
                kept = states[first : last - num_rejected[row]]
                hosted.keep_states(name, int(batch.num_computed_tokens_np[row]), (kept,))
            running.append(name)
            most = self.num_speculative_steps if limit is None else limit
            caps.append(most if num_sampled[row] and request.ended is None else 0)
        rows_of = dict(zip(running, hosted.propose(running, caps).rows, strict=True))
        return [list(rows_of.get(name, ())) for name in batch.req_ids[: batch.num_reqs]]

    def _take_in(
        self,
        hosted: HostedProposer,
        name: str,
        request: Request,
        tokens: torch.Tensor,
        length: int,
        num_sampled: int,
        num_drafted: int,
    ) -> None:
        if name not in hosted.request_ids:
            prompt = tokens[: request.num_prompt_tokens].cpu().numpy()
            hosted.start(name, prompt, request.params, seed=request.seed)
        before = hosted.num_tokens(name)
        new_tokens = tokens[before:length].tolist()
        if new_tokens and request.ended is None:
            kept = request.until_end(new_tokens, before, hosted.info.max_model_len)
            hosted.commit(
                name, kept, num_drafted=num_drafted, num_accepted=min(max(0, num_sampled - 1), len(kept))
            )


class _State:
    """The fields of vLLM's request state that `Requests` reads."""

    def __init__(self, sampling_params: Any, num_prompt_tokens: int) -> None:
        self.sampling_params = sampling_params
        self.num_prompt_tokens = num_prompt_tokens
