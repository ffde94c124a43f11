"""SGLang's worker for drafts, with a proposer of specdec. Needs SGLang."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from specdec import ConfigError
from specdec.engine import aligned
from specdec_hosting import HostedProposer, open_proposer
from specdec_sglang.drafting import Drafting
from specdec_sglang.layout import laid_out
from specdec_sglang.settings import LATE_KEY, VARIABLE, Settings, read_settings, with_width
from specdec_sglang.states import PassStates
from specdec_sglang.target import host_target

if TYPE_CHECKING:

    class NGRAMWorker:
        """Stub of SGLang's class for type checking."""

        device: str

        def forward_batch_generation(self, *_: Any) -> Any:
            """Likewise."""

        def _prepare_for_speculative_decoding(self, batch: Any) -> None: ...

else:
    from sglang.srt.speculative.ngram_worker import NGRAMWorker

logger = logging.getLogger("specdec")


class Worker(NGRAMWorker):
    """Drafts with a proposer where SGLang's `NGRAMWorker` looks n-grams up; verification is SGLang's.

    With tensor parallelism the first rank drafts, and sends its drafts to the others.
    """

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        from sglang.srt.runtime_context import get_device, get_exec, get_parallel, get_schedule, get_spec
        from sglang.srt.speculative.base_spec_worker import BaseSpecWorker

        BaseSpecWorker.__init__(self)  # `NGRAMWorker`'s own would build its corpus
        schedule, spec = get_schedule(), get_spec()
        self.server_args = server_args
        self._target_worker = target_worker
        self.model_runner = target_worker.model_runner
        self.device = get_device().device
        self.enable_overlap = not schedule.disable_overlap_schedule
        self.page_size = schedule.page_size
        self.draft_token_num = self.speculative_num_draft_tokens = spec.speculative_num_draft_tokens
        self.topk, self.speculative_num_steps = spec.speculative_eagle_topk, spec.speculative_num_steps
        self.adaptive_controller = None
        self.grammar_tree_host = None
        self._prev_decode_rids: set[str] = set()
        self.ngram_corpus = self  # to which `NGRAMWorker` tells the requests that left its batch
        self._group = get_parallel().tp_group
        self._is_late = False
        self._returns_states = get_exec().features.return_hidden_states_mode == "full"
        if self.topk > 1 and self.page_size > 1:
            raise ConfigError(
                f"--speculative-eagle-topk {self.topk} (trees) needs --page-size 1, which is {self.page_size}: use 1, or leave "
                "--speculative-eagle-topk out for chains"
            )
        self._drafting: Drafting | None = None
        self._late: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        """Late drafts `[B, 2 n]`, padded with -1, and `[B]` whether each begins with the tokens of the step before."""
        self._last_rids = set[str]()
        """Requests of the pass before, whose results SGLang reads after it has launched the next one."""
        self.open_specdec(read_settings())
        self.model_runner.spec_algorithm.worker = self

    def open_specdec(self, settings: Settings) -> None:
        """Load a proposer in the place of the one before; call it between requests, on all ranks.

        Raises:
            ConfigError: for a configuration that is invalid or that this engine cannot run.
            PluginError: for a method that is not installed or cannot be loaded.
            ModelError: for a draft that cannot be loaded.
        """
        layers: tuple[int, ...] | None = None
        if self._group.rank_in_group == 0:
            target = host_target(
                self.model_runner,
                self._target_worker.tokenizer,
                settings.kv_cache_memory_bytes,
                verifies_trees=self.topk > 1,
                returns_states=self._returns_states,
            )
            config = with_width(settings.speculative_config, self.draft_token_num)
            hosted = open_proposer(config, target, host="SGLang")
            self._drafting = Drafting(hosted, self.draft_token_num)
            layers = hosted.aux_layer_ids if hosted.needs_hidden else None
            asked = settings.late_drafts
            is_late = self.device != "cpu" if asked is None else asked
            self._is_late = is_late and self.enable_overlap and self.topk == 1 and hosted.drafts_late
            self._say(hosted, is_ignored=bool(asked) and not self._is_late)
        self._is_late, layers = self._shared((self._is_late, layers))
        states = None
        if layers is not None:
            num_layers = self.model_runner.model_config.num_hidden_layers
            states = PassStates(self.model_runner.model, layers, num_layers)
        if self._drafting is not None:
            self._drafting.states = states

    def _say(self, hosted: HostedProposer, *, is_ignored: bool) -> None:
        from sglang.srt.runtime_context import get_memory

        logger.info(
            "specdec drafts with %r, at most %d tokens, %s", hosted.name, self.draft_token_num - 1,
            "late: from text without the tokens of the running step" if self._is_late else "in time",
        )  # fmt: skip
        logger.warning(
            "specdec: SGLang verifies drafts with its own sampler: greedy text is that without speculation, sampled text "
            "follows the same distribution but is not the text that a seed gives without speculation%s",
            "; on a CPU SGLang chooses greedily where it verifies drafts" if self.device == "cpu" else "",
        )
        if hosted.needs_hidden and not get_memory().disable_radix_cache:
            logger.warning(
                "proposer %r reads hidden states, and SGLang has none of prefixes in its cache: requests that share "
                "their first token with another one get no drafts; add --disable-radix-cache",
                hosted.name,
            )
        if is_ignored:
            logger.warning(
                "%s: %r has no effect: it needs steps that SGLang overlaps, chains, and a method that reads only token ids",
                VARIABLE, LATE_KEY,
            )  # fmt: skip

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, pp_proxy_tensors: Any = None
    ) -> Any:
        """Run a pass and verify, as SGLang does, and keep the hidden states that the proposer reads."""
        is_prompt = batch.forward_mode.is_extend()
        result = super().forward_batch_generation(batch, on_publish, pp_proxy_tensors)
        self._last_rids = {req.rid for req in batch.reqs}
        states = None if self._drafting is None else self._drafting.states
        if states is not None and batch.reqs:
            states.note(batch, result.logits_output, None if is_prompt else self.draft_token_num)
        return result

    def specdec_counters(self) -> dict[str, Any]:
        """Return the proposer's counters; empty on ranks that do not draft. `/server_info` has them too."""
        return {} if self._drafting is None else self._drafting.hosted.counters()

    def draft_late(self, batch: Any) -> None:
        """Draft for a batch without the tokens of the step that runs; called before SGLang waits for that step."""
        if self._drafting is not None and self._drafts_late(batch) and batch.forward_mode.is_decode():
            is_unread = [req.rid in self._last_rids for req in batch.reqs]
            rows = self._drafting.draft(batch.reqs, is_late=is_unread).rows
            width = 2 * self.draft_token_num
            drafts = np.full((len(rows), width), -1, np.int64)
            for place, row, late in zip(drafts, rows, is_unread, strict=True):
                first = 0 if late else 1  # the place of a token that is read already
                place[first : first + len(row)] = row[: width - first]
            self._late = drafts, np.array(is_unread)

    def _drafts_late(self, batch: Any) -> bool:
        """Return whether the batch may have tokens that nobody has read, and its drafts are made without them."""
        return self._is_late and not batch.grammar_needs_sync()

    def _prepare_for_speculative_decoding(self, batch: Any) -> None:
        """Lay the drafts of a batch out; late ones are aligned on the device with what the step before has emitted."""
        before = batch.spec_info
        super()._prepare_for_speculative_decoding(batch)
        if not batch.forward_mode.is_target_verify() or not self._drafts_late(batch):
            return
        late, self._late = self._shared(self._late), None
        width, device = self.draft_token_num, batch.input_ids.device
        token_ids = before.accept_tokens.view(-1, width).to(torch.int64)
        num_accepted = before.accept_lens.to(torch.int64) - 1
        ids = batch.input_ids.view(-1, width)
        if late is None:  # none were asked for
            ids.copy_(token_ids.gather(1, num_accepted[:, None]).expand(-1, width))
            return
        drafts, is_unread = (torch.from_numpy(part).to(device, non_blocking=True) for part in late)
        ids[:, :1] = token_ids.gather(1, num_accepted[:, None])
        lengths = (drafts >= 0).sum(1) + ~is_unread
        num_accepted = torch.where(is_unread, num_accepted, 0)
        ids[:, 1:] = aligned(drafts, lengths, token_ids, num_accepted, width - 1)

    def _prepare_draft_tokens(self, batch: Any) -> tuple[Any, Any]:
        """Return the tokens to verify `[B * n]` and their mask `[B * n * n]`; has SGLang's signature."""
        if self._drafts_late(batch):
            nothing: list[tuple[int, ...]] = [()] * len(batch.reqs)
            ids, mask = laid_out([0] * len(nothing), nothing, None, self.draft_token_num)
            return ids.reshape(-1), mask.reshape(-1)
        made = None
        if self._drafting is not None:
            emitted = None
            if self.enable_overlap and not batch.grammar_needs_sync():
                steps = _read(batch.spec_info, self.draft_token_num)
                last = [tokens[-1] for tokens in steps]
                emitted = [*map(_unread, batch.reqs, batch.seq_lens_cpu.tolist(), steps)]
            else:
                last = [(req.output_ids or req.origin_input_ids_unpadded)[-1] for req in batch.reqs]
            draft = self._drafting.draft(batch.reqs, emitted)
            made = laid_out(last, draft.rows, draft.parents, self.draft_token_num)
        ids, mask = self._shared(made)
        return ids.reshape(-1), mask.reshape(-1)

    def _shared(self, value: Any) -> Any:
        """Return the first rank's value on all ranks."""
        return value if self._group.world_size == 1 else self._group.broadcast_object(value, src=0)

    def _update_ngram_corpus(self, batch: Any) -> None:
        """Do nothing: the proposer is told tokens when it is asked for the next drafts."""

    def erase_match_state(self, rids: list[str]) -> None:
        """Drop requests that have left the batch; those that ended were told before."""
        if self._drafting is not None:
            self._drafting.leave(rids)

    def note_request_finished(self, *, rid: str, natural_stop: bool) -> None:
        """Tell the proposer how a request ended."""
        if self._drafting is not None:
            self._drafting.finish(rid)

    def clear_cache_pool(self) -> None:
        """Drop all requests: SGLang has flushed its cache. What the proposer has learned of ended ones stays."""
        self._prev_decode_rids = set()
        if self._drafting is not None:
            self._drafting.finish_all()


def _read(spec_info: Any, width: int) -> list[list[int]]:
    """Return the tokens of each request in its last step; waits for the device."""
    tokens = spec_info.accept_tokens.view(-1, width).tolist()
    return [row[:count] for row, count in zip(tokens, spec_info.accept_lens.tolist(), strict=True)]


def _unread(req: Any, num_cached: int, step: list[int]) -> list[int]:
    """Return the tokens of a request's last step that are not in its `output_ids`: none if a prompt has run since.

    All tokens but the last one are in the cache.
    """
    num_unread = num_cached + 1 - len(req.origin_input_ids) - len(req.output_ids)
    return step[max(0, len(step) - num_unread) :] if num_unread > 0 else []
