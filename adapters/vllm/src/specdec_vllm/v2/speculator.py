"""A proposer in vLLM's V2 model runner (`vllm/v1/worker/gpu`)."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from specdec import FinishReason
from specdec.engine import num_aligned
from specdec.interfaces import CheckedDraft, sent_together
from specdec_hosting import HostedProposer
from specdec_vllm.requests import Request, Requests
from specdec_vllm.v2.late import left_of
from specdec_vllm.v2.probs import DraftLogits
from specdec_vllm.v2.unread import LateDraft, UnreadStep, UnreadSteps

if TYPE_CHECKING:

    class BaseSpeculator:
        """Stub of vLLM's class for type checking."""

else:
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

When = Literal["late", "on_device", "in_time"]
"""How a proposer is asked: before the tokens of the last step are known, and the device takes what is left of its draft; as
soon as these are on the device; or once the host has waited for them."""


def when_asked(hosted: HostedProposer, num_behind: int) -> When:
    """Return how a proposer is asked; `num_behind` steps are launched whose tokens the host does not have."""
    if hosted.drafts_on_device:
        return "on_device"
    return "late" if hosted.drafts_late and num_behind else "in_time"


class Speculator(BaseSpeculator):
    """Takes the place of one of vLLM's speculators.

    vLLM verifies as many drafted tokens of every request, so the last token follows a short draft, and is verified like any
    other.

    Args:
        hosted: the proposer; None on tensor parallel ranks other than the first.
        when: how it is asked, also on the other ranks.
        runner: vLLM's model runner with `method="ngram_gpu"`, which keeps all token ids on the device.
        requests: the adapter's state of requests.
        num_behind: launched steps whose tokens vLLM may not have when it launches another one.
        broadcast: broadcasts the first rank's drafts to all ranks, in place; None with one rank.
        has_probs: whether drafts are verified with the distributions that they were drawn from.
        aux_layer_ids: target layers whose inputs vLLM gives, in order.
    """

    supports_mm_inputs = False
    draft_token_confidence_probs = None
    _finish_requests: Any
    _add_requests: Any
    _update_requests: Any
    _sample_tokens: Any
    """vLLM's own functions."""

    def __init__(
        self,
        hosted: HostedProposer | None,
        when: When,
        runner: Any,
        requests: Requests,
        num_behind: int,
        broadcast: Any = None,
        *,
        has_probs: bool = False,
        aux_layer_ids: tuple[int, ...] = (),
    ) -> None:
        self.num_speculative_steps: int = runner.num_speculative_steps
        self._hosted, self._when, self._runner, self._requests = hosted, when, runner, requests
        self._broadcast, self._aux_layer_ids = broadcast, aux_layer_ids
        self._unread = UnreadSteps(num_behind)
        self._launched: UnreadStep | None = None
        self._step_started = 0.0
        self._drafted: dict[str, int] = {}
        """Number of tokens that a proposer asked in time drafted of each request."""
        self._probs = None
        if has_probs:
            states = runner.req_states
            lines = states.max_num_reqs, self.num_speculative_steps, runner.vocab_size
            self._probs = DraftLogits(*lines, states.last_sampled_tokens.device)

    @property
    def draft_logits(self) -> torch.Tensor | None:
        """`[lines, k, V]` what drafts were drawn from; None for point masses."""
        return None if self._probs is None else self._probs.tensor

    def attach(self) -> None:
        """Replace the runner's speculator and wrap its functions; the last one attached to a runner is used."""
        runner = self._runner
        for name in ("finish_requests", "add_requests", "update_requests", "sample_tokens"):
            setattr(self, f"_{name}", getattr(type(runner), name).__get__(runner))
            setattr(runner, name, getattr(self, name))
        runner.speculator = self

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Do nothing: vLLM's CUDA graphs are not used."""

    def capture(self) -> None:
        """Do nothing, likewise."""

    def prepare_watermarking(self, *_: Any) -> None:
        """Do nothing: tokens are drafted without a watermark."""

    def finish_requests(self, scheduler_output: Any) -> None:
        """Tell the proposer what is known by now and who ended, then run vLLM's own function; a step begins with it."""
        self._step_started = time.perf_counter()
        for step in self._unread.known():
            self._commit_all(step, [*step.requests])
        finished = sorted(scheduler_output.finished_req_ids)
        for step in self._unread.read() if finished else ():
            self._commit_all(step, finished)
        preempted = scheduler_output.preempted_req_ids or ()
        reasons = self._requests.take(finished)
        reasons |= dict.fromkeys(self._requests.take(sorted(preempted)), FinishReason.ABORT)
        for name, reason in reasons.items():
            self._drafted.pop(name, None)
            if self._hosted is not None:
                self._hosted.finish([name], reason)
        self._finish_requests(scheduler_output)

    def add_requests(self, scheduler_output: Any) -> None:
        """Run vLLM's own function, then start new requests, and those that were preempted again."""
        self._add_requests(scheduler_output)
        for new in scheduler_output.scheduled_new_reqs:
            if new.sampling_params is None or new.prompt_token_ids is None:
                continue  # nothing is sampled, or there are no ids
            num_prompt = len(new.prompt_token_ids)
            request = self._requests.start(new.req_id, new.sampling_params, num_prompt)
            if self._hosted is not None:
                self._hosted.attempt(partial(self._start, self._hosted, new, request))

    def update_requests(self, scheduler_output: Any) -> None:
        """Run vLLM's own function, then put late drafts where the next pass takes drafted tokens from."""
        self._update_requests(scheduler_output)
        drafted = {name: len(ids) for name, ids in scheduler_output.scheduled_spec_decode_tokens.items()}
        held = self._requests.held
        running = {name: held[name] for name in scheduler_output.num_scheduled_tokens if name in held}
        self._launched = UnreadStep(running, drafted)
        wanted = [name for name in running if drafted.get(name)]
        if self._when != "late" or not running:
            return
        states, width = self._runner.req_states, self.num_speculative_steps
        if self._hosted is not None:
            draft = partial(self._draft_late, self._hosted, self._launched)
            self._launched.late = self._hosted.attempt(draft) or {}
        if not wanted:
            return
        late = [self._launched.late.get(name, LateDraft(1, ())) for name in wanted]
        lines = [states.req_id_to_index[name] for name in wanted]
        most = [self._unread.most(name) for name in wanted]
        last = [running[name].last_token for name in wanted]
        nodes, lines_there = left_of(late, last, lines, most, states, width)
        if self._broadcast is not None:
            self._broadcast(nodes)
        states.draft_tokens[lines_there] = nodes
        if scheduler_output.has_structured_output_requests:  # vLLM's grammars advance by the drafts
            told = SimpleNamespace(req_ids=wanted, has_structured_output_reqs=True)
            self._runner.draft_tokens_handler.set_draft_tokens(told, nodes)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Run vLLM's own function, and note where the step's tokens will be."""
        output = self._sample_tokens(grammar_output)
        if self._launched is not None and hasattr(output, "copy_event") and self._when != "in_time":
            self._launched.output = output
            self._unread.add(self._launched)
            if self._hosted is not None:
                self._hosted.observe_target(time.perf_counter() - self._step_started)
        self._launched = None
        return output

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
        if dummy_run or is_profile or self._when == "late":
            return drafts
        if self._hosted is not None:
            most = width if num_speculative_tokens is None else num_speculative_tokens
            hosted, draft, names = self._hosted, None, list[str]()
            if self._when == "on_device":
                made = self._hosted.attempt(partial(self._draft_on_device, hosted, input_batch, most))
            else:
                by_layer = dict(zip(self._aux_layer_ids, aux_hidden_states or (), strict=True))
                states = last_hidden_states, *(by_layer[layer] for layer in hosted.aux_layer_ids)
                counts = torch.stack([num_sampled, num_rejected], 1)
                made = self._hosted.attempt(
                    partial(self._draft_in_time, hosted, input_batch, states, counts, most)
                )
            if made is not None:
                names, draft = made
            places = {name: row for row, name in enumerate(input_batch.req_ids[: input_batch.num_reqs])}
            rows = [places[name] for name in names]
            if draft is not None and any(draft.num_nodes):
                self._put(drafts, draft, rows)
            if self._probs is not None:
                none = CheckedDraft.empty(len(rows))
                self._probs.write(drafts, input_batch.idx_mapping, temperature, draft or none, rows)
        if self._broadcast is not None:
            self._broadcast(drafts)
        return drafts

    def _start(self, hosted: HostedProposer, new: Any, request: Request) -> None:
        ids = new.prefill_token_ids
        prompt, output = ids[: request.num_prompt_tokens], ids[request.num_prompt_tokens :]
        line = self._runner.req_states.req_id_to_index[new.req_id]
        request.last_token = ids[-1]
        hosted.start(
            new.req_id, prompt, request.params, output_token_ids=output, seed=request.seed, line=line
        )

    def _commit_all(self, step: UnreadStep, names: list[str]) -> None:
        """Tell the proposer the tokens of some of a step's requests, once."""
        for name in names:
            request = step.requests.pop(name, None)
            if request is None or self._requests.held.get(name) is not request or request.ended is not None:
                continue  # it has left the step, or begun anew
            if self._hosted is not None:
                self._hosted.attempt(partial(self._commit_late, self._hosted, step, name, request))

    def _commit_late(self, hosted: HostedProposer, step: UnreadStep, name: str, request: Request) -> None:
        if name not in hosted.request_ids:
            return
        num_drafted = step.num_drafted.get(name, 0)
        if self._when == "late":
            late = step.late.get(name)
            since = [] if late is None else request.since(late.num_tokens, hosted.num_tokens(name))
            num_drafted = 0 if late is None else num_aligned(late.token_ids, since, num_drafted)
        self._commit(hosted, name, request, step.tokens(name), num_drafted)

    def _commit(
        self, hosted: HostedProposer, name: str, request: Request, token_ids: list[int], num_drafted: int
    ) -> None:
        if not token_ids or request.ended is not None:
            return
        kept = request.until_end(token_ids, hosted.num_tokens(name), hosted.info.max_model_len)
        request.emitted += kept
        request.last_token = kept[-1]
        num_accepted = min(len(token_ids) - 1, len(kept), num_drafted)
        hosted.commit(name, kept, num_drafted=num_drafted, num_accepted=num_accepted)

    def _draft_late(self, hosted: HostedProposer, step: UnreadStep) -> dict[str, LateDraft]:
        names = [name for name in step.requests if name in hosted.request_ids]
        caps = [0 if step.requests[name].ended else step.num_drafted.get(name, 0) for name in names]
        rows = hosted.propose(names, caps, [self._unread.most(name) for name in names]).rows
        return {
            name: LateDraft(hosted.num_tokens(name), row)
            for name, row, cap in zip(names, rows, caps, strict=True)
            if cap
        }

    def _draft_on_device(
        self, hosted: HostedProposer, batch: Any, most: int
    ) -> tuple[list[str], CheckedDraft]:
        step = self._launched
        assert step is not None
        names = [name for name in step.requests if name in hosted.request_ids]
        ends = batch.num_computed_prefill_tokens_np + batch.num_scheduled_tokens >= batch.prefill_len_np
        has_sampled = dict(zip(batch.req_ids, ends.tolist(), strict=True))
        caps = [most if has_sampled[name] and not step.requests[name].ended else 0 for name in names]
        unread = [self._unread.most(name) + 1 + step.num_drafted.get(name, 0) for name in names]
        return names, hosted.propose(names, caps, unread)

    def _draft_in_time(
        self,
        hosted: HostedProposer,
        batch: Any,
        states: tuple[torch.Tensor, ...],
        counts: torch.Tensor,
        most: int,
    ) -> tuple[list[str], CheckedDraft]:
        hosted.observe_target(time.perf_counter() - self._step_started)
        held, names, caps = self._runner.req_states, list[str](), list[int]()
        ends = held.total_len.gpu[batch.idx_mapping].to(torch.int64)
        columns = torch.arange(-1 - self.num_speculative_steps, 0, device=ends.device)
        places = (ends[:, None] + columns).clamp(min=0)
        newest = held.all_token_ids.gpu[batch.idx_mapping[:, None], places]
        wait = torch.cat([counts, newest], 1).tolist()  # the host waits for the step here
        for row, name in enumerate(batch.req_ids[: batch.num_reqs]):
            request = self._requests.held.get(name)
            if request is None or name not in hosted.request_ids:
                continue
            num_sampled, num_rejected, *newest_of = wait[row]
            start = int(batch.num_computed_tokens_np[row])
            if not batch.is_prefilling_np[row]:
                start = hosted.num_tokens(name) - 1  # vLLM's own number is a bound
            emitted = newest_of[len(newest_of) - num_sampled :]
            verified = 0 if batch.num_draft_tokens_per_req is None else batch.num_draft_tokens_per_req[row]
            num_drafted = min(self._drafted.pop(name, 0), int(verified))
            self._commit(hosted, name, request, emitted, num_drafted)
            if hosted.needs_hidden:
                first, last = (int(at) for at in batch.query_start_loc_np[row : row + 2])
                hosted.keep_states(name, start, tuple(kind[first : last - num_rejected] for kind in states))
            names.append(name)
            caps.append(most if num_sampled and request.ended is None else 0)
        draft = hosted.propose(names, caps)
        self._drafted |= {name: len(row) for name, row in zip(names, draft.rows, strict=True)}
        return names, draft

    def _put(self, drafts: torch.Tensor, draft: CheckedDraft, rows: list[int]) -> None:
        """Write a draft of some rows `[B]` over `drafts [num_reqs, k]`."""
        vocab_size, counts = self._runner.vocab_size, np.array(draft.num_nodes)
        if draft.device_nodes is None:
            padded = np.zeros((len(rows), max(counts)), np.int64)
            for place, ids in zip(padded, draft.rows, strict=True):
                place[: len(ids)] = ids
            nodes, counts_there, there = sent_together([padded, counts, np.array(rows)], drafts.device)
        else:
            counts_there, there = sent_together([counts, np.array(rows)], drafts.device)
            nodes = draft.device_nodes.nodes[0][:, : drafts.shape[1]].clamp(0, vocab_size - 1)
        is_drafted = torch.arange(nodes.shape[1], device=drafts.device) < counts_there[:, None]
        drafts[there, : nodes.shape[1]] = torch.where(is_drafted, nodes, drafts[there, : nodes.shape[1]])
