"""Drafts that are copied from texts on the device, which follow from one verdict after another without the host."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import ChainWork, Judged, NewRows, NoiseKeys, Places, RequestTable
from specdec_kernels.cuda.graphs.following import FollowingGraphs
from specdec_kernels.cuda.graphs.pass_shape import sizes_for
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.static_texts import RULES, LookUp, StaticTexts, TextsShape
from specdec_kernels.cuda.graphs.step_graphs import MAX_REQUESTS
from specdec_kernels.cuda.paged_pass import Int64s


class TextGraphs(FollowingGraphs[StaticTexts]):
    """Writes the new tokens of requests into their texts and looks up drafts, with one recording per number of requests.

    Args:
        recorder: the device's recorder.
        texts: `[lines, L + 1]` int32, on the device: the tokens of each request; the last column is room for padding.
        look_up: finds drafts in it.
        num_steps: tokens K of a draft.
        table: where the target's verification leaves its verdicts.
    """

    def __init__(
        self, recorder: Recorder, texts: torch.Tensor, look_up: LookUp, num_steps: int, table: RequestTable
    ) -> None:
        super().__init__("drafts from texts")
        self._table = table
        self._recorder, self.texts, self._look_up = recorder, texts, look_up
        self._num_steps = num_steps
        self._most_new = num_steps + 1

    def prepare(self, num_requests: int) -> None:
        """Record lookups for up to so many requests."""
        self._verdicts = self._table
        for size in sizes_for(min(num_requests, MAX_REQUESTS)):
            if self.failure is None:
                self._record(TextsShape(size, self._num_steps))

    def draft(self, rows: NewRows, slots: Int64s, lines: Int64s, num_tokens: Int64s) -> torch.Tensor | None:
        """Return drafts `[B, K]`, which the next call overwrites; None, with nothing done, if no recording is large enough.

        Args:
            rows: new tokens; a request may have none.
            slots: `[T]` where each is in the texts, as one line after another.
            lines: `[B]` the line of each request.
            num_tokens: `[B]` number of tokens of its text, with the new ones.
        """
        size = len(lines)
        found = self._recordings.find(TextsShape(1 << (size - 1).bit_length(), self._num_steps))
        if found is None or len(slots) > found[0].max_new_rows:
            self._last, self._num_begun, self._is_taken = None, 0, False
            self.num_plain += 1
            return None
        static, width = found[0], self.texts.shape[1]
        work = ChainWork(
            (lines * width).tolist(),
            num_tokens.tolist(),
            self._num_steps,
            [0.0] * size,
            NoiseKeys(np.zeros(size, np.int64), np.zeros(size, np.int64), num_tokens),
            RULES,
            has_room=True,
        )

        def send(places: Places) -> None:
            static.send(rows, slots, lines, work, places)

        def fill(judged: Judged | None) -> None:
            """Nothing belongs to tokens."""

        (drafts,) = self._follow(found, send, fill, rows, work)
        return drafts[:size]

    def _has_room_behind(self, static: StaticTexts, work: ChainWork, depths: Int64s) -> bool:
        """See `FollowingGraphs._has_room_behind`."""
        return bool((np.array(work.num_cached) + depths + 1 < self.texts.shape[1]).all())

    def _record(self, shape: TextsShape) -> None:
        """Record a lookup in a text of a few tokens, and compare a replay with it."""
        assert self._verdicts is not None
        static = StaticTexts(shape, self.texts, self._look_up, self._verdicts)
        text = np.array([1, 2, 1, 2])[: self._most_new]
        count, zero = np.array([len(text)]), np.zeros(1, np.int64)
        keys = NoiseKeys(zero, zero, count)
        work = ChainWork([0], count.tolist(), 0, [0.0], keys, RULES)  # of no depth: no verdict is due

        def first() -> Tensors:
            static.send(NewRows(text, count.tolist()), np.arange(len(text)), zero, work)
            return static.run()

        self._keep(self._recorder, shape, static, static.run, first)
