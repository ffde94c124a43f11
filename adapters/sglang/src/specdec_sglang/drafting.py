"""What the proposer of one SGLang scheduler is told of its requests, and asked for."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec import FinishReason, SamplingParams
from specdec.engine import num_aligned
from specdec.interfaces import CheckedDraft
from specdec_hosting import HostedProposer
from specdec_sglang.states import PassStates

logger = logging.getLogger("specdec")

LIMIT_KEY = "specdec_num_speculative_tokens"
"""The key of a request's `custom_params` that limits its drafts; 0 turns them off."""
_Row = tuple[int, ...]


@dataclass
class _Request:
    """A request that decodes."""

    theirs: Any
    """SGLang's `Req`."""
    num_prompt_tokens: int
    asked: deque[tuple[_Row, bool]] = field(default_factory=deque)
    """Drafts that are not verified as far as the host knows, oldest first, and whether each was late."""
    last: list[int] = field(default_factory=list)
    """The tokens of its last step."""

    def num_drafted(self, most: int) -> int:
        """Return the nodes of the oldest draft, of at most so many, that were verified; forget it."""
        row, is_late = self.asked.popleft() if self.asked else ((), False)
        return num_aligned(row, self.last, most) if is_late else len(row)


class Drafting:
    """A proposer and the requests that it knows.

    A failure of this class costs the drafts of a step, as one of the proposer does.

    Args:
        hosted: the proposer.
        width: tokens that SGLang verifies of each request, one more than it may draft.
    """

    def __init__(self, hosted: HostedProposer, width: int) -> None:
        self.hosted = hosted
        self.states: PassStates | None = None
        """Of the target, if the proposer reads them."""
        self._width = width
        self._requests: dict[str, _Request] = {}
        self._left = set[str]()
        self._asked_at = 0.0

    def draft(
        self,
        reqs: Sequence[Any],
        emitted: Sequence[list[int]] | None = None,
        is_late: Sequence[bool] | None = None,
    ) -> CheckedDraft:
        """Commit the tokens that requests have emitted, and draft for them.

        Args:
            reqs: SGLang's requests of a batch that decodes.
            emitted: tokens of each that are emitted, and not in its `output_ids` yet; None for none.
            is_late: whether each has such tokens that nobody has read; None for no. Its draft then begins with what they may
                be, and is longer by as many as they can be.

        Returns:
            a draft with a row per request.
        """
        none: list[list[int]] = [[]] * len(reqs)
        made = self.hosted.attempt(lambda: self._draft(reqs, emitted or none, is_late or [False] * len(reqs)))
        if made is None:
            self._clear()
        return CheckedDraft.empty(len(reqs)) if made is None else made

    def _draft(
        self, reqs: Sequence[Any], emitted: Sequence[list[int]], is_late: Sequence[bool]
    ) -> CheckedDraft:
        now = time.perf_counter()
        self._drop_left()
        if any(req.rid in self._requests for req in reqs):
            self.hosted.observe_target(now - self._asked_at)
        # One that has ended stays in the batch for a step.
        running = [place for place, req in enumerate(reqs) if not req.finished()]
        names, caps = [], []
        for place in running:
            req = reqs[place]
            has_ended = self._take_in(req, emitted[place], is_late=is_late[place])
            names.append(req.rid)
            caps.append(0 if has_ended else self._width - 1)
        unread = [self._width if is_late[place] else 0 for place in running]
        draft = self.hosted.propose(names, caps, unread if any(unread) else None)
        for name, row, place in zip(names, draft.rows, running, strict=True):
            self._requests[name].asked.append((row, is_late[place]))
        self._asked_at = time.perf_counter()
        return draft if len(running) == len(reqs) else _spread(draft, running, len(reqs))

    def _take_in(self, req: Any, emitted: list[int], *, is_late: bool) -> bool:
        """Start a request or commit its new tokens; return whether one of `emitted` ends it, as SGLang will find."""
        kept = _until_end(req, emitted)
        output = [*req.output_ids, *kept]
        name, hosted = req.rid, self.hosted
        request = self._requests.get(name)
        num_known = num_before = 0
        if request is not None:
            num_known = hosted.num_tokens(name) - request.num_prompt_tokens
            if num_known > len(output) or request.theirs is not req:
                self._finish(name, FinishReason.ABORT)  # SGLang has taken tokens back: start anew
                request = None
        if request is None:
            prompt = req.origin_input_ids_unpadded
            request = self._requests[name] = _Request(req, len(prompt))
            if is_late:
                request.asked.append(((), False))  # the tokens that are not read follow no draft
            hosted.start(name, prompt, _params(req), output_token_ids=output)
        elif len(output) > num_known:
            new = output[num_known:]
            num_before = hosted.num_tokens(name)
            num_drafted = request.num_drafted(self._width - 1)
            hosted.commit(name, new, num_drafted=num_drafted, num_accepted=min(len(new) - 1, num_drafted))
            request.last = new
            while len(request.asked) > is_late:  # SGLang has read two steps
                request.asked.popleft()
        self._keep_states(name, num_before)
        return len(kept) > 0 and _ends(req, kept[-1])

    def _keep_states(self, name: str, num_before: int) -> None:
        """Keep the states of a request's passes since the last call; the last one followed `num_before` tokens."""
        held = None if self.states is None else self.states.take(name)
        if held is None or (held[0] is None and not num_before):
            return
        start, states = held
        if start is None:  # a chain was verified: its accepted nodes are the first ones
            start = num_before - 1
            states = tuple(kind[: self.hosted.num_tokens(name) - num_before] for kind in states)
        self.hosted.keep_states(name, start, states)

    def finish(self, name: str) -> None:
        """Commit the last tokens of a request, and tell the proposer how it ended."""
        request = self._requests.get(name)
        if request is None:
            return
        req = request.theirs
        new = req.output_ids_through_stop[self.hosted.num_tokens(name) - request.num_prompt_tokens :]
        if new:
            num_drafted = request.num_drafted(self._width - 1)
            self.hosted.commit(
                name, list(new), num_drafted=num_drafted, num_accepted=min(len(new) - 1, num_drafted)
            )
        reason = req.finished_reason.to_json()["type"] if req.finished_reason is not None else "abort"
        self._finish(name, FinishReason(reason))

    def leave(self, names: Iterable[str]) -> None:
        """Note requests that have left the batch: some to the queue, and some whose end SGLang finds with its next results."""
        self._left |= {name for name in names if name in self._requests}

    def _drop_left(self) -> None:
        """Drop requests that had left the batch before the last one, and have not ended."""
        for name in sorted(self._left & self._requests.keys()):
            self._finish(name, FinishReason.ABORT)
        self._left.clear()

    def finish_all(self) -> None:
        """Drop all requests."""
        self._left |= self._requests.keys()
        self._drop_left()
        self._clear()

    def _clear(self) -> None:
        self._requests.clear()
        self._left.clear()
        if self.states is not None:
            self.states.clear()

    def _finish(self, name: str, reason: FinishReason) -> None:
        del self._requests[name]
        self.hosted.finish([name], reason)


def _params(req: Any) -> SamplingParams:
    """Return the parameters that the proposer gets: SGLang draws tokens itself, so drafts are the likeliest ones."""
    theirs = req.sampling_params
    limit = (theirs.custom_params or {}).get(LIMIT_KEY)
    is_limit = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if limit is not None and not is_limit:
        logger.warning("custom_params: %s is %r: give a number of at least 0", LIMIT_KEY, limit)
    return SamplingParams(
        temperature=0.0,
        max_tokens=theirs.max_new_tokens,
        speculative={"num_speculative_tokens": limit} if is_limit else None,
    )


def _ends(req: Any, token: int) -> bool:
    theirs = req.sampling_params
    if token in (theirs.stop_token_ids or ()):
        return True
    return not theirs.ignore_eos and token in (req.eos_token_ids or ())


def _until_end(req: Any, token_ids: list[int]) -> list[int]:
    """Return the tokens up to the first that ends a request, where SGLang will end it once it has read them."""
    return next(
        (token_ids[: place + 1] for place, token in enumerate(token_ids) if _ends(req, token)), token_ids
    )


def _spread(draft: CheckedDraft, places: Sequence[int], num_rows: int) -> CheckedDraft:
    """Return a draft with its rows at these places, and empty ones elsewhere."""
    row_of = {place: row for row, place in enumerate(places)}

    def spread(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
        return tuple(rows[row_of[place]] if place in row_of else () for place in range(num_rows))

    return CheckedDraft(spread(draft.rows), None if draft.parents is None else spread(draft.parents))
