"""Proposers that break one promise each about caps, delivery and the life of requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kit_subjects.breaking import Mutants, register_in
from kit_subjects.memory import writable
from kit_subjects.toys import Chain, Head, Learner, Recaller, Tree
from specdec.interfaces import Draft, FinishReason, ProposeBatch, ProposerConfig, TargetInfo

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


@breaks("test_node_caps_are_kept")
class OneOverTheCap(Chain):
    def propose(self, batch: ProposeBatch) -> Draft:
        self.take_in(batch)
        return self.drafted(batch, [most + 1 if most else 0 for most in batch.max_nodes])


@breaks("test_node_caps_are_kept")
class CapOfTheFirstRow(Chain):
    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        return super().drafted(batch, [min(1, cap) * max(caps) for cap in caps])


@breaks("test_node_caps_are_kept")
class TreeOverTheCap(Tree):
    def branches(self, text: Sequence[int], max_nodes: int) -> tuple[list[int], list[int]]:
        return super().branches(text, 2 * max_nodes)


@breaks("test_ids_are_in_the_vocabulary")
class IdOutsideTheVocabulary(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return [text[-1] + 1] * count


@breaks("test_no_draft_where_none_is_wanted")
class DraftsThoughTheCapIsZero(Chain):
    def propose(self, batch: ProposeBatch) -> Draft:
        self.take_in(batch)
        return self.drafted(batch, [most or 1 for most in batch.max_nodes])


@breaks("test_a_call_without_new_tokens")
class NeedsNews(Chain):
    def take_in(self, batch: ProposeBatch) -> None:
        assert batch.new_token_ids[0] >= 0
        super().take_in(batch)


@breaks("test_a_call_without_new_tokens")
class ForgetsWithoutNews(Chain):
    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        return super().drafted(batch, [cap if n else 0 for cap, n in zip(caps, batch.counts, strict=True)])


@breaks("test_a_context_of_one_token")
class NeedsTwoTokens(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return [text[-2]] * count if count else []


@breaks("test_the_end_of_the_context_window")
class BufferTooShort(Chain):
    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.buffer = np.zeros(target.max_model_len - 1, np.int32)

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        self.buffer[len(text) - 1] = text[-1]
        return super().guess(text, count)


@breaks("test_the_end_of_the_context_window")
class DraftsPastTheWindow(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        is_near = len(text) > self.target_info.max_model_len - 5
        return [1] * self.config.num_speculative_tokens if is_near else super().guess(text, count)


@breaks("test_the_same_seed_gives_the_same_drafts")
class Unseeded(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return [random.randrange(4) for _ in range(count)]


@breaks("test_the_same_seed_gives_the_same_drafts")
class UnseededTorch(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return torch.randint(0, 4, (count,)).tolist()


@breaks("test_what_is_held_of_a_prefix_is_as_good_as_told")
class HoldsMoreThanThereIs(Chain):
    def resume(self, request_id: str, token_ids: np.ndarray) -> int:
        return len(token_ids) + 1


@breaks("test_what_is_held_of_a_prefix_is_as_good_as_told")
class RaisesAtAPrefix(Chain):
    def resume(self, request_id: str, token_ids: np.ndarray) -> int:
        return len(self.held[request_id])


@breaks("test_what_is_held_of_a_prefix_is_as_good_as_told")
class HoldsTheTextOfAnother(Chain):
    def resume(self, request_id: str, token_ids: np.ndarray) -> int:
        self.held[request_id] = self.held["runs"][: len(token_ids)]
        return len(token_ids)


@breaks("test_rows_do_not_depend_on_each_other")
class TextOfTheNeighbour(Chain):
    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        texts = [self.held[name] for name in batch.request_ids]
        rows = [self.guess([*texts[0], *text], cap) for text, cap in zip(texts, caps, strict=True)]
        return Draft.from_lists(rows)


@breaks("test_rows_do_not_depend_on_each_other")
class LearnsFromTheRunning(Learner):
    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        for name in batch.request_ids:
            self.successors.update(zip(self.held[name], self.held[name][1:], strict=False))


@breaks("test_rows_join_and_leave")
class StateByPosition(Chain):
    """Keeps texts by row; alone and in a batch that stays as it is that goes well."""

    def take_in(self, batch: ProposeBatch) -> None:
        numbered = replace(batch, request_ids=tuple(str(row) for row in range(batch.batch_size)))
        super().take_in(numbered)
        for row, name in enumerate(batch.request_ids):
            self.held[name] = self.held[str(row)]


@breaks("test_rows_join_and_leave")
class DropsEverybody(Chain):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        self.held.clear()


@breaks("test_a_start_below_what_is_held_means_forget_from_there")
class IgnoresRedelivery(Chain):
    def take_in(self, batch: ProposeBatch) -> None:
        held = [len(self.held.get(name, ())) for name in batch.request_ids]
        super().take_in(replace(batch, starts=held))


@breaks("test_a_start_below_what_is_held_means_forget_from_there")
class KeepsTheLongerText(Chain):
    def take_in(self, batch: ProposeBatch) -> None:
        before = {name: list(self.held.get(name, ())) for name in batch.request_ids}
        super().take_in(batch)
        for name, text in before.items():
            self.held[name] += text[len(self.held[name]) :]


@breaks("test_aborted_requests_leave_nothing_behind")
class KeepsFinished(Chain):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        pass


@breaks("test_aborted_requests_leave_nothing_behind")
class KeepsAborted(Chain):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        if reason not in (FinishReason.ABORT, FinishReason.ERROR):
            super().finish(request_ids, reason)


@breaks("test_a_finished_request_is_forgotten")
class RemembersTheId(Chain):
    """Keeps what it drafts from for each id: the first token ever delivered under it."""

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.firsts: dict[str, int] = {}

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        for name in batch.request_ids:
            self.firsts.setdefault(name, self.held[name][0])
        return Draft.from_lists(
            [[self.firsts[n]] * cap for n, cap in zip(batch.request_ids, caps, strict=True)]
        )


@breaks("test_finishing_unknown_requests_is_harmless")
class ExpectsToKnow(Chain):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            del self.held[name]


@breaks("test_aborted_requests_teach_nothing")
class LearnsFromAborted(Learner):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        super().finish(request_ids, FinishReason.STOP)


@breaks("test_aborted_requests_teach_nothing")
class RecallsAborted(Recaller):
    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        super().finish(request_ids, FinishReason.STOP)


@breaks("test_tokens_are_taken_in_while_no_draft_is_wanted")
class MissesTokensAtCapZero(Chain):
    """Takes tokens in where a draft is wanted, and starts over where it has missed some."""

    def take_in(self, batch: ProposeBatch) -> None:
        at = 0
        for row, name in enumerate(batch.request_ids):
            news = batch.new_token_ids[at : at + batch.counts[row]].tolist()
            at += batch.counts[row]
            held = self.held.setdefault(name, [])
            if batch.max_nodes[row] or len(held) + len(news) == batch.num_prompt_tokens[row] - 1:
                del held[batch.starts[row] :]
                held += news


@breaks("test_pieces_make_no_difference")
class TakesTheLastTokenOnly(Chain):
    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        for row, name in enumerate(batch.request_ids):
            if batch.starts[row]:
                del self.held[name][batch.starts[row] : -1]


@breaks("test_inputs_are_not_written_to")
class WritesCounts(Chain):
    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        batch.counts[0] = 0  # type: ignore[index]  # that is the point


@breaks("test_inputs_are_not_written_to")
class WritesTokens(Chain):
    """Writes past the read-only flag, as native code may."""

    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        writable(batch.token_ids(0))[0] += 1


@breaks("test_inputs_are_not_written_to")
class WritesStates(Head):
    def take_in(self, batch: ProposeBatch) -> None:
        super().take_in(batch)
        if batch.hidden_states is not None:
            batch.hidden_states.mul_(0.5)


@breaks("test_inputs_are_not_kept")
class KeepsAView(Chain):
    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.prompts: dict[str, Any] = {}

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        rows = []
        for row, (name, cap) in enumerate(zip(batch.request_ids, caps, strict=True)):
            prompt = self.prompts.setdefault(name, batch.token_ids(row)[:4])
            rows.append(prompt.tolist()[:cap])
        return Draft.from_lists(rows)
