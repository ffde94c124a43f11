"""The suite for scorers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from specdec import SamplingParams
from specdec.interfaces import Scores
from specdec.logits import RowBlock, p_logits
from specdec_testing.scorers.suite import TOLERANCE, ScorerSuite
from specdec_testing.support.passes import PassRows, difference, reference_states
from specdec_testing.support.target import reference_model
from specdec_testing.support.verdicts import broken

__all__ = ["ScorerConformance"]

_TREE = (-1, -1, 0, 0, 1, 4, 2)
_CHAIN = (-1, 0, 1, 2)


class ScorerConformance(ScorerSuite):
    """The promises of a scorer, one test each, in float32 against the same model run by `transformers`.

    A subclass sets `scorer` (a name, the class, or `./file.py:Class`) and, if needed, `model`.
    """

    def test_the_handle_describes_the_target(self) -> None:
        """`load` returns the target's facts, and a cache with room for a whole context.

        To fix: fill `TargetInfo` from the loaded model, and allocate the cache for `max_num_seqs` requests if it fits.
        """
        info, config = self._handle().info, reference_model(self.model).config.get_text_config()
        facts = {"hidden_size": config.hidden_size, "num_layers": config.num_hidden_layers}
        for name, expected in facts.items():
            if getattr(info, name) != expected:
                broken(f"TargetInfo.{name} is {getattr(info, name)}, the model says {expected}")
        [text] = self._texts(5)
        passes = self._passes()
        sequence = passes.place(text)
        width = passes.score([PassRows(sequence, 5)]).raw_logits.shape[1]
        passes.kv.release(sequence)
        if info.vocab_size != width:
            broken(f"TargetInfo.vocab_size is {info.vocab_size}, logits have {width} columns")

    def test_a_prompt_is_a_plain_pass(self) -> None:
        """The row of a prompt's last token equals that of a plain pass over the prompt.

        To fix: positions count from 0, and the requested row is the last one of the chunk.
        """
        for text in self._texts(1, 2, 41):
            passes = self._passes()
            part = PassRows(passes.place(text), len(text))
            self._check_rows(passes.score([part]).raw_logits, part, f"a prompt of {len(text)} tokens")
            passes.kv.release(part.sequence)

    def test_pieces_of_a_prompt_make_no_difference(self) -> None:
        """A prompt that runs in chunks gives the same rows as one that runs at once.

        To fix: write keys and values of every chunk after those of the previous chunks, and attend to all of them.
        """
        [text] = self._texts(40)
        for pieces in ((1, 39), (13, 13, 14), (39, 1)):
            passes = self._passes()
            sequence = passes.place(text)
            for count in pieces[:-1]:
                piece = PassRows(sequence, count)
                passes.score([piece])
                passes.advance(piece)
            part = PassRows(sequence, pieces[-1])
            self._check_rows(passes.score([part]).raw_logits, part, f"pieces of {pieces} tokens")
            passes.kv.release(sequence)

    def test_rows_of_a_chain_are_those_of_its_texts(self) -> None:
        """The row of every node of a chain equals that of a plain pass over the text up to it.

        To fix: node i is at position committed length + i and attends to all committed tokens and the nodes before it.
        """
        self._check_draft(None)

    def test_rows_of_a_tree_are_those_of_its_paths(self) -> None:
        """The row of every node of a tree equals that of a plain pass over its path; other branches are not visible.

        To fix: a node's position is committed length + depth, never its row, and it attends only to its ancestors.
        """
        self._check_draft(_TREE)

    def test_the_next_step_builds_on_what_was_accepted(self) -> None:
        """After a step rejected nodes have no effect, and the accepted path of a tree is committed.

        To fix: `cache.gather` moves the accepted rows together; let later rows overwrite the others.
        """
        for parents, accepted in (
            (_CHAIN, ()),
            (_CHAIN, (0, 1)),
            (_TREE, (1, 4, 5)),
            (_TREE, (0, 2, 6)),
            (_TREE, (1,)),
        ):
            [text, drafted] = self._texts(30, len(parents))
            passes = self._passes()
            sequence = passes.place(text)
            first = PassRows(sequence, 30, tuple(drafted), parents)
            passes.score([first])
            passes.commit(first, accepted, token=drafted[0])
            second = PassRows(sequence, 1, tuple(drafted[:2]))
            self._check_rows(
                passes.score([second]).raw_logits,
                second,
                f"after nodes {list(accepted)} of {len(parents)} were accepted",
            )
            passes.kv.release(sequence)

    def test_requests_do_not_see_each_other(self) -> None:
        """A request's rows are the same in a batch with prompts, chunks, chains and trees of other lengths.

        To fix: keep each request's keys in its own slots, and its attention within its own segment.
        """
        texts = self._texts(25, 3, 44, 17)
        passes = self._passes()
        a, b, c, d = (passes.place(text) for text in texts)
        drafted = self._texts(len(_TREE))[0]
        parts = [
            PassRows(a, 25, tuple(drafted), _TREE), PassRows(b, 3), PassRows(c, 20), PassRows(d, 17, tuple(drafted[:3])),
        ]  # fmt: skip
        scores = passes.score(parts)
        sampling = [parts[0], parts[1], parts[3]]
        for part, rows in zip(sampling, _rows_of(sampling, scores), strict=True):
            self._check_rows(rows, part, "in a batch of 4")
        passes.advance(parts[2])
        rest = PassRows(c, 24)
        self._check_rows(
            passes.score([rest]).raw_logits, rest, "a prompt whose first piece ran beside 3 others"
        )
        for sequence in (a, b, c, d):
            passes.kv.release(sequence)

    def test_sampling_parameters_are_applied(self) -> None:
        """`logits` are p-logits, with temperature and truncation applied; `raw_logits` are the target's own.

        To fix: pass raw logits and one `RowBlock` per request to `specdec.logits.pipeline.p_logits`, which applies all of it.
        """
        params = [SamplingParams(temperature=0.5, top_k=3), SamplingParams(temperature=2.0, top_p=0.7)]
        passes = self._passes()
        texts = self._texts(9, 12)
        parts = [
            PassRows(passes.place(text, each), len(text), (1, 2))
            for text, each in zip(texts, params, strict=True)
        ]
        scores = passes.score(parts)
        blocks = [RowBlock(part.sequence.params, part.nodes) for part in parts]
        expected = torch.softmax(p_logits(scores.raw_logits, blocks), -1)
        if difference(torch.softmax(scores.logits, -1), expected) > 1e-4:
            broken("Scores.logits are not raw_logits with temperature and truncation applied")
        for part, rows in zip(parts, _rows_of(parts, scores), strict=True):
            self._check_rows(rows, part, "raw_logits of a request with temperature and truncation")
            passes.kv.release(part.sequence)

    def test_hidden_states_are_those_of_the_layers(self) -> None:
        """After `capture_hidden` passes return the final state and the inputs of the requested layers for every row.

        To fix: the final state is taken after the final norm; id k is the input of layer k; rows are those of the whole pass.
        """
        scorer, passes, handle = self._new()
        layers = (0, handle.info.num_layers - 1)
        scorer.capture_hidden(layers)
        texts = self._texts(11, 6)
        parts = [PassRows(passes.place(texts[0]), 11, (3, 5)), PassRows(passes.place(texts[1]), 6)]
        scores = passes.score(parts)
        found = _states(scores, len(layers))
        firsts = accumulate((part.num_rows for part in parts[:-1]), initial=0)
        for part, first in zip(parts, firsts, strict=True):
            expected = reference_states(reference_model(self.model), part.path(len(part.nodes) - 1))
            wanted = (expected[-1], *(expected[layer] for layer in layers))
            names = ("the final state", *(f"the input of layer {layer}" for layer in layers))
            for name, got, want in zip(names, found, wanted, strict=True):
                off = difference(got[first : first + len(want)], want)
                if not off <= TOLERANCE:
                    broken(f"{name} is {off:.2g} off that of a plain pass")

    def test_a_pass_can_be_run_again(self) -> None:
        """While `on_pass` is set, every `score` calls it once with a function that runs the same pass again.

        To fix: `if self.on_pass is not None: self.on_pass(partial(forward, batch))` after the pass, for benchmarks.
        """
        scorer, passes, _ = self._new()
        again: list[object] = []
        scorer.on_pass = again.append
        [text] = self._texts(8)
        part = PassRows(passes.place(text), 8, (1, 2))
        scores = passes.score([part])
        before = scores.raw_logits.clone()
        if len(again) != 1 or not callable(again[0]):
            broken(f"on_pass was called {len(again)} times in one pass")
        again[0]()
        if not torch.equal(before, scores.raw_logits):
            broken("running the pass again changed the scores of the first time")

    def _check_draft(self, parents: tuple[int, ...] | None) -> None:
        count = 5 if parents is None else len(parents)
        text, drafted = self._texts(33, count)
        for chunk in (33, 1):
            passes = self._passes()
            sequence = passes.place(text)
            if chunk == 1:
                before = PassRows(sequence, 32)
                passes.score([before])
                passes.advance(before)
            part = PassRows(sequence, chunk, tuple(drafted), parents)
            self._check_rows(
                passes.score([part]).raw_logits, part, f"a draft after a piece of {chunk} tokens"
            )
            passes.kv.release(sequence)


def _rows_of(parts: Sequence[PassRows], scores: Scores) -> tuple[torch.Tensor, ...]:
    """Return the rows of `raw_logits` of each request that samples: one for its last committed token and each of its nodes."""
    counts = [1 + len(part.nodes) for part in parts]
    if len(scores.raw_logits) != sum(counts):
        broken(f"{len(scores.raw_logits)} rows of raw_logits for requests of {counts} rows")
    rows: tuple[torch.Tensor, ...] = scores.raw_logits.split(counts)
    return rows


def _states(scores: Scores, num_layers: int) -> tuple[torch.Tensor, ...]:
    if scores.hidden_states is None:
        broken("capture_hidden was called and the pass returned no hidden_states")
    if len(scores.aux_hidden_states) != num_layers:
        broken(f"{len(scores.aux_hidden_states)} aux_hidden_states for {num_layers} layers asked for")
    return scores.hidden_states, *scores.aux_hidden_states
