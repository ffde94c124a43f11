"""Forms of models, pass by pass beside the model's own forward."""

from __future__ import annotations

import torch

from specdec_testing.backends.suite import BackendSuite
from specdec_testing.support.fast_runner import MAX_CONTEXT, NUM_REQUESTS, FastRunner
from specdec_testing.support.packed import RequestRows
from specdec_testing.support.texts import repetitive
from specdec_testing.support.verdicts import broken, not_applicable

_PROMPT = 23
_TREE = (-1, 0, 0, 1, 1, 2, 3)
"""Parents of the last committed token and six nodes."""
_WIDTHS = (1, 2, 3, 5, 8, 13)


class FormTests(BackendSuite):
    """Values, cache rows and counters of forms."""

    def test_passes_agree(self) -> None:
        """Logits of prompts, chunks of prompts and drafts of any length are those of the model's own forward, up to rounding.

        To fix: compare pass by pass with `inner.forward`; give `inner` what you do not run.
        """
        for dtype in self._dtypes():
            runner = self._runner(dtype)
            for slot, pieces in enumerate(((_PROMPT,), (1, 1, 21), (20, 2, 1))):
                done = 0
                for count in pieces:
                    rows = _rows(runner, slot, done, count)
                    runner.run(f"{dtype}: {count} rows after {done}", rows)
                    done = rows.end
                for count in _WIDTHS:
                    runner.run(f"{dtype}: {count} rows after {done}", _rows(runner, slot, done, count))

    def test_requests_do_not_see_each_other(self) -> None:
        """Rows of several requests in one pass, with other lengths and anywhere in the cache, are those of passes of their own.

        To fix: a row attends to its segment alone: cached rows from `first_slot` on, then the new ones.
        """
        for dtype in self._dtypes():
            runner = self._runner(dtype)
            lengths = (19, 1, 7, 32)
            slots = (4, 0, 2, 1)
            prompts = [_rows(runner, slot, 0, n) for slot, n in zip(slots, lengths, strict=True)]
            runner.run(f"{dtype}: prompts of {lengths} tokens", *prompts)
            parts = [_rows(runner, slot, n, 1 + slot) for slot, n in zip(slots, lengths, strict=True)]
            runner.run(f"{dtype}: drafts of 4 requests", *parts, _rows(runner, 5, 0, 11))

    def test_trees_agree(self) -> None:
        """Nodes of a tree see their ancestors alone, those that are in the cache already included.

        To fix: `Segment.tree_mask` says what each row sees; positions are in the batch, they are no row numbers.
        """
        for dtype in self._dtypes():
            runner = self._runner(dtype)
            prompts = [_rows(runner, slot, 0, _PROMPT - slot) for slot in range(2)]
            runner.run(f"{dtype}: prompts", *prompts)
            tree = _rows(runner, 0, _PROMPT, len(_TREE), parents=_TREE)
            runner.run(f"{dtype}: a tree", tree)
            runner.run(f"{dtype}: a tree beside a chain", tree, _rows(runner, 1, _PROMPT - 1, 3))
            more = (*_TREE, 3, 4, 4, 6)
            runner.run(f"{dtype}: the next level of a tree", _rows(runner, 0, tree.end, 4, parents=more))

    def test_logits_are_those_of_the_rows_asked_for(self) -> None:
        """`logits_rows` says which rows have logits, in any order; None means all.

        To fix: index the hidden states by `batch.logits_rows` before the output layer.
        """
        runner = self._runner()
        rows = _rows(runner, 0, 0, 9)
        for asked in ([8], [0, 8], [5, 2, 7], [3, 3], list(range(9))):
            runner.run(f"logits of rows {asked} of 9", rows, logits_rows=asked)
        both = rows, _rows(runner, 1, 0, 4)
        runner.run("logits of the last rows of 2 requests", *both, logits_rows=[8, 12])

    def test_hidden_states_agree(self) -> None:
        """Passes return the hidden states that `runner.wanted` names when they run, and no others.

        To fix: look `runner.wanted` up in `rebind` or in every pass; layer ids are those whose input is wanted, the number of
        layers means the last layer's output, the final states are those after the final norm.
        """
        for dtype in self._dtypes():
            runner = self._runner(dtype)
            runner.run(f"{dtype}: without states", _rows(runner, 0, 0, _PROMPT))
            last = runner.plain.module.config.get_text_config().num_hidden_layers  # type: ignore[union-attr, operator]
            for asked in ((), (0, last), (last - 1,)):
                runner.capture_hidden(asked)
                what = f"{dtype}: final states and those of layers {asked}"
                runner.run(what, _rows(runner, 0, _PROMPT, 3), _rows(runner, 1, 0, 5), logits_rows=[2, 7])

    def test_passes_may_alternate_with_the_own_forward(self) -> None:
        """Keys and values lie in core's cache as the model's own forward writes and reads them: forms may alternate.

        To fix: read and write `runner.cache` at the slots of the batch, and keep no rows of your own.
        """
        for dtype in self._dtypes():
            runner = self._runner(dtype)
            done = 0
            for turn, count in enumerate((_PROMPT, 3, 1, 5, 1, 2)):
                form = runner.own if turn % 2 else None
                who = "the own forward" if turn % 2 else "the form"
                rows = _rows(runner, 1, done, count)
                runner.run(f"{dtype}: {who}, {count} rows after {done} of the other", rows, form=form)
                done = rows.end

    def test_a_new_cache_is_used(self) -> None:
        """After the runner has allocated another cache, passes use it: cache and attention are looked up or rebound.

        To fix: keep no tensor of `runner.cache` and no `runner.attention` beyond a pass, or replace them in `rebind`.
        """
        runner = self._runner()
        rows = _rows(runner, 1, 0, _PROMPT), _rows(runner, 1, _PROMPT, 2)
        for size in (NUM_REQUESTS, 3, NUM_REQUESTS + 2):
            runner.allocate(size * MAX_CONTEXT)
            for part in rows:
                runner.run(f"a cache of {size * MAX_CONTEXT} slots", part)
            runner.run("the own forward on the same cache", rows[1], form=runner.own)

    def test_invariant_rows_keep_their_bits(self) -> None:
        """With `is_invariant` a row's logits have the same bits alone, in a chunk, and beside other requests.

        To fix: leave `is_invariant` False, or sum in an order that depends on no other row.
        """
        runner = self._runner(is_invariant=True)
        if not runner.fast.forms[0][0].is_invariant:
            not_applicable("is_invariant is False")
        text = _rows(runner, 0, 0, _PROMPT)
        whole = runner.run("a prompt", text).logits
        for first in (_PROMPT - 1, 10, 1):
            runner.run("its first rows", _rows(runner, 0, 0, first))
            rest = runner.run("its last rows", _rows(runner, 0, first, _PROMPT - first)).logits
            beside = runner.run("beside another", _rows(runner, 1, 0, 7), text).logits[7:]
            if not torch.equal(rest, whole[first:]) or not torch.equal(beside, whole):
                broken(
                    f"logits of {_PROMPT} rows differ in {first} + {_PROMPT - first} rows, or beside another request"
                )

    def test_counters_count(self) -> None:
        """`counts` and `levels` return whole numbers by name; a counter never decreases.

        To fix: add to counters in `forward`; what goes up and down is a gauge: return it from `levels`.
        """
        runner = self._runner()
        form = runner.fast.forms[0][0]
        before: dict[str, int] = {}
        for slot in range(3):
            runner.run("a prompt", _rows(runner, slot, 0, 5))
            counts, levels = form.counts(), form.levels()
            for name, value in (counts | levels).items():
                if type(value) is not int or value < 0:
                    broken(f"{name} is {value!r}, no whole number from 0 on")
            if fallen := [name for name, value in before.items() if counts.get(name, 0) < value]:
                broken(f"{fallen[0]} fell from {before[fallen[0]]} to {counts.get(fallen[0])}")
            before = counts


def _rows(
    runner: FastRunner, request: int, start: int, count: int, parents: tuple[int, ...] | None = None
) -> RequestRows:
    """Return rows of one request's text, from `start` on."""
    text = repetitive(runner.vocab_size, 7 + request, MAX_CONTEXT)
    return RequestRows(request * MAX_CONTEXT, start, tuple(text[start : start + count]), parents)
