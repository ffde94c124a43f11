"""Grows drafts that continue one node at each depth, from the logits of every depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting.chooser import Chooser, DraftPosition
from specdec_runtime.drafting.partial_draft import PartialDraft
from specdec_runtime.interfaces.steps import Steps

RunNext = Callable[[list[PartialDraft], list[int], list[int]], torch.Tensor]
"""Runs the tokens `[R]`, as ids of the draft's input, that drafts `[R]` continue with; returns logits `[R, Vd]`.

Its second argument are the places `[R]` that these drafts had in the depth before."""
Confidences = Callable[[int, Any, torch.Tensor], torch.Tensor]
"""Returns the probability `[R]` that what a step will choose is accepted; arguments as of `Steps.step`."""


class ChainGrowth:
    """Adds tokens to drafts until each has as many as it may have, or its last token ends it.

    Args:
        chooser: chooses tokens.
        threshold: a token with a probability below this is the last of its draft.
        eos_token_ids: ids that end a text.
    """

    def __init__(self, chooser: Chooser, threshold: float, eos_token_ids: tuple[int, ...]) -> None:
        self._chooser, self._threshold, self._eos_token_ids = chooser, threshold, eos_token_ids

    def in_turn(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], logits: torch.Tensor, run_next: RunNext
    ) -> None:
        """Grow drafts depth by depth, each from a pass over the tokens chosen before.

        Args:
            batch: the step's batch.
            drafts: `[R]` empty drafts of different rows of the batch.
            logits: `[R, Vd]` at the last committed tokens.
            run_next: runs one depth.
        """
        active = list(drafts)
        while True:
            token_ids = self._extend(batch, active, logits)
            places = [place for place, draft in enumerate(active) if draft.num_wanted]
            if not places:
                return
            active = [active[place] for place in places]
            logits = run_next(active, places, [token_ids[place] for place in places])

    def by_steps(
        self,
        batch: ProposeBatch,
        drafts: Sequence[PartialDraft],
        steps: Steps,
        given: torch.Tensor,
        confidences: Confidences | None = None,
    ) -> None:
        """Grow drafts depth by depth, each by a step that reads the token chosen before.

        Args:
            batch: the step's batch.
            drafts: `[R]` empty drafts of different rows of the batch.
            steps: what gives logits, of the target's ids.
            given: `[R, ...]` what each draft begins with.
            confidences: what the threshold is compared with; None for the probabilities of the tokens that are continued.
        """
        active, index, states = list(drafts), 0, steps.begin(given)
        token_ids = [int(batch.token_ids(draft.row)[-1]) for draft in drafts]
        while active:
            ids = torch.tensor(token_ids, dtype=torch.int64, device=given.device)
            sure = None if confidences is None else confidences(index, states, ids).tolist()
            states, logits = steps.step(index, states, ids)
            token_ids = self._extend(batch, active, logits, sure)
            places = [place for place, draft in enumerate(active) if draft.num_wanted]
            if len(places) < len(active):
                is_one = isinstance(states, torch.Tensor)
                states = states[places] if is_one else tuple(each[places] for each in states)
            active = [active[place] for place in places]
            token_ids, index = [token_ids[place] for place in places], index + 1

    def at_once(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], logits: Sequence[torch.Tensor]
    ) -> None:
        """Grow drafts from logits `[depth, Vd]` of each, at the last committed token and the mask tokens after it."""
        active, depth = list(zip(drafts, logits, strict=True)), 0
        while active:
            self._extend(batch, [d for d, _ in active], torch.stack([rows[depth] for _, rows in active]))
            active = [(draft, rows) for draft, rows in active if draft.num_wanted]
            depth += 1

    def _extend(
        self,
        batch: ProposeBatch,
        drafts: Sequence[PartialDraft],
        logits: torch.Tensor,
        sure: Sequence[float] | None = None,
    ) -> list[int]:
        """Add one depth to each draft; returns the token that each continues with, -1 if no token is allowed.

        `sure [R]` takes the place of the probability of that token.
        """
        places = [DraftPosition(d.row, d.path, len(d.token_ids), d.num_wanted) for d in drafts]
        choice = self._chooser.choose(logits, places, batch)
        for index, draft in enumerate(drafts):
            params = batch.sampling_params[draft.row]
            if not choice.target_ids[index]:
                draft.is_ended = True
                continue
            confidences = None if choice.confidences is None else choice.confidences[index]
            if confidences and sure is not None:
                confidences[0] = sure[index]
            probs = None if choice.probs is None or params.is_greedy else choice.probs[index]
            draft.add(choice.target_ids[index], confidences, probs)
            is_unsure = confidences is not None and confidences[0] < self._threshold
            is_last = not params.ignore_eos and draft.path[-1] in self._eos_token_ids
            draft.is_ended = is_unsure or is_last
        return [ids[0] if ids else -1 for ids in choice.draft_ids]
