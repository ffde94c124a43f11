"""Verifies drafts in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from specdec.engine import select_rows
from specdec.interfaces import CheckedDraft, DrawnNodes, Sampler, Scores, VerifyBatch
from specdec_vllm.batch_logits import BatchLogits
from specdec_vllm.params import MIN_TEMPERATURE
from specdec_vllm.requests import Request, Requests

_REJECTED = -1
"""Placeholder that vLLM reads as no token."""


class Verifier(nn.Module):
    """Replaces vLLM's rejection sampler and has its signature.

    At temperature 0 the longest prefix of argmax tokens is accepted. For a seeded request under `strict`, each token is drawn
    from the target's distribution with vLLM's own sampler and the request's own generator, in the same order as without
    drafts. A drafted token is accepted if it equals the drawn one, so the text is the same as in vLLM without speculation.
    All other requests are verified by the configured specdec sampler.

    Args:
        stock: vLLM's rejection sampler, whose logits processors and log probabilities are used.
        runner: vLLM's model runner, which holds the batch.
        requests: the adapter's state of requests.
        sampler: the specdec sampler.
    """

    def __init__(self, stock: Any, runner: Any, requests: Requests, sampler: Sampler) -> None:
        super().__init__()
        self.stock = stock
        self._runner = runner
        self._requests = requests
        self._sampler = sampler
        self._draft: tuple[CheckedDraft, dict[str, int]] | None = None

    def note_drafts(self, draft: CheckedDraft, rows: dict[str, int]) -> None:
        """Store the draft that the next step verifies, and the row of each request in it."""
        self._draft = (draft, rows) if draft.drawn is not None else None

    def forward(
        self, metadata: Any, draft_probs: torch.Tensor | None, logits: torch.Tensor, sampling_metadata: Any
    ) -> Any:
        """Verify the drafts of a batch.

        Args:
            metadata: vLLM's `SpecDecodeMetadata`.
            draft_probs: vLLM's draft probabilities; not used, q is taken from the proposer's draft.
            logits: `[num_draft_tokens + batch_size, V]`, each request's rows together.
            sampling_metadata: vLLM's sampling metadata of the batch.

        Returns:
            vLLM's `SamplerOutput`; tokens `[batch_size, max_draft + 1]` int32, padded with -1.
        """
        if not self._runner.input_batch.num_reqs:  # vLLM runs its samplers once during warm-up
            return self.stock(metadata, draft_probs, logits, sampling_metadata)
        if self._are_final(sampling_metadata):
            final = logits.to(torch.float32)
        else:
            final = self._final_logits(metadata, logits, sampling_metadata)
        batch = BatchLogits(metadata, final, sampling_metadata, self.stock.sampler)
        tokens = self._verify(batch)
        width = metadata.max_spec_len + 1
        padded = [row + [_REJECTED] * (width - len(row)) for row in tokens]
        emitted = torch.tensor(padded, dtype=torch.int32, device=logits.device)
        return self._output(metadata, logits, batch, emitted, sampling_metadata)

    def _are_final(self, sampling: Any) -> bool:
        """Return whether the argmax can be taken from the raw logits: all requests are greedy and nothing modifies logits."""
        if not sampling.all_greedy:
            return False
        budgets = sampling.thinking_budget_state_holder
        is_changed = (
            not sampling.no_penalties
            or sampling.allowed_token_ids_mask is not None
            or sampling.bad_words_token_ids
            or (budgets is not None and budgets.has_tracked_requests())
            # With speculation vLLM has one processor, which enforces min_tokens.
            or any(self._request(name).theirs.min_tokens for name in self._runner.input_batch.req_ids)
        )
        return not is_changed

    def _request(self, name: str) -> Request:
        return self._requests.of(name, self._runner.requests[name])

    def _final_logits(self, metadata: Any, logits: torch.Tensor, sampling: Any) -> torch.Tensor:
        """Return all rows after vLLM's logits processors, in float32 and in new storage."""
        drafted, last = metadata.target_logits_indices, metadata.bonus_logits_indices
        # In vLLM's order: the first of these two calls also updates the state of thinking budgets.
        bonus = self.stock.sampler.apply_logits_processors(logits[last].to(torch.float32), sampling, True)
        target = self.stock.apply_logits_processors(logits[drafted].to(torch.float32), sampling, metadata)
        final = torch.empty_like(logits, dtype=torch.float32)
        final[drafted], final[last] = target, bonus
        return final

    def _verify(self, rows_of_batch: BatchLogits) -> list[list[int]]:
        batch = self._runner.input_batch
        requests = [self._request(name) for name in batch.req_ids]
        rows_of_batch.drawn = [
            row for row, r in enumerate(requests) if r.theirs.temperature >= MIN_TEMPERATURE
        ]
        emitted: list[list[int]] = [[] for _ in requests]
        if len(rows_of_batch.drawn) < len(requests):
            best = self.stock.sampler.greedy_sample(rows_of_batch.final).tolist()
            for row in set(range(len(requests))) - set(rows_of_batch.drawn):
                first, draft = rows_of_batch.starts[row], rows_of_batch.drafts[row]
                emitted[row] = _standing(draft, best[first : first + len(draft) + 1])
        in_turn = [row for row in rows_of_batch.drawn if requests[row].has_vllm_noise]
        others = [row for row in rows_of_batch.drawn if not requests[row].has_vllm_noise]
        self._draw_in_turn(in_turn, rows_of_batch, emitted)
        if others:
            self._draw_by_sampler(others, rows_of_batch, requests, emitted)
        return emitted

    def _draw_in_turn(
        self, rows: Sequence[int], rows_of_batch: BatchLogits, emitted: list[list[int]]
    ) -> None:
        """Draw one token per request at a time, as vLLM does without drafts, while the drawn tokens equal the draft."""
        waiting, depth = list(rows), 0
        while waiting:
            chosen = rows_of_batch.draw(waiting, depth)
            for row, token in zip(waiting, chosen, strict=True):
                emitted[row].append(token)
            waiting = [
                row for row in waiting if rows_of_batch.drafts[row][depth : depth + 1] == emitted[row][depth:]
            ]
            depth += 1

    def _draw_by_sampler(
        self, rows: list[int], rows_of_batch: BatchLogits, requests: list[Request], emitted: list[list[int]]
    ) -> None:
        batch = self._runner.input_batch
        drafts = [rows_of_batch.drafts[row] for row in rows]
        logits = rows_of_batch.logits_of(rows)
        verdict = self._sampler.verify(
            Scores(logits=logits, raw_logits=logits),
            VerifyBatch(
                nodes=drafts,
                num_tokens=[int(batch.num_tokens_no_spec[row]) for row in rows],
                seeds=[requests[row].seed for row in rows],
                sample_indices=[0] * len(rows),
                sampling_params=[requests[row].params for row in rows],
                drawn=self._drawn([(batch.req_ids[row], requests[row]) for row in rows], drafts),
            ),
        )
        for row, token_ids in zip(rows, verdict.token_ids, strict=True):
            emitted[row] = list(token_ids)

    def _drawn(self, owners: list[tuple[str, Request]], drafts: list[list[int]]) -> DrawnNodes | None:
        """Return the q of the drafts to verify; a row has q if the proposer returned q for exactly these tokens.

        vLLM truncates a draft before the first token that a grammar forbids. Whether a node is present then depends on its own
        token, so the rest of such a draft does not follow its q.
        """
        if self._draft is None:
            return None
        draft, places = self._draft
        if draft.drawn is None:
            return None
        rows, width = draft.rows, draft.drawn.token_ids.shape[1]
        is_known = [
            name in places and not request.has_grammar and list(rows[places[name]][: len(ids)]) == ids
            for (name, request), ids in zip(owners, drafts, strict=True)
        ]
        if not any(is_known) or max(map(len, drafts)) > width:
            return None
        chosen = select_rows(draft, [places.get(name, 0) for name, _ in owners])
        assert chosen.drawn is not None
        has_probs = torch.tensor(is_known)
        if chosen.drawn.has_probs is not None:
            has_probs &= chosen.drawn.has_probs.cpu()
        return replace(chosen.drawn, has_probs=has_probs)

    def _output(
        self, metadata: Any, logits: torch.Tensor, batch: BatchLogits, emitted: torch.Tensor, sampling: Any
    ) -> Any:
        from vllm.v1.outputs import SamplerOutput

        logprobs = None
        if sampling.max_num_logprobs is not None:
            drafted, last = metadata.target_logits_indices, metadata.bonus_logits_indices
            shown = logits
            if self.stock.is_processed_logprobs_mode:
                shown = batch.final
                shown[batch.places_of(batch.drawn)] = batch.logits_of(batch.drawn)
            logprobs = self.stock._get_logprobs_tensors(
                sampling.max_num_logprobs,
                metadata,
                logits,
                shown[drafted].to(torch.float32),
                shown[last],
                emitted,
            )
        return SamplerOutput(sampled_token_ids=emitted, logprobs_tensors=logprobs)


def _standing(draft: list[int], best: list[int]) -> list[int]:
    """Return the argmax tokens up to the first one that was not drafted."""
    for depth, token in enumerate(draft):
        if token != best[depth]:
            return best[: depth + 1]
    return best
