"""Recorded lookups in texts: what they find after verdicts and after tokens that are sent, and how they fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.recorder import Rerun

from specdec.interfaces import Judged, NewRows, Places, RequestTable
from specdec_kernels.cuda.graphs import TextGraphs
from specdec_kernels.cuda.graphs.static_texts import StaticTexts
from specdec_kernels.triton import ngram_match

NUM_STEPS = 3
MOST = 60
PLACES = Places(40, 46, NUM_STEPS + 1)
NUM_IDS = 3


def made(recorder: Rerun | None = None) -> tuple[TextGraphs, torch.Tensor, RequestTable]:
    texts = torch.zeros(8, MOST + 1, dtype=torch.int32)

    def look_up(lines: torch.Tensor, num_tokens: torch.Tensor) -> torch.Tensor:
        return ngram_match(texts, num_tokens, 1, 2, NUM_STEPS, lines=lines, fills=True).token_ids

    table = RequestTable(torch.device("cpu"))
    graphs = TextGraphs(recorder or Rerun(), texts, look_up, NUM_STEPS, table)
    graphs.prepare(4)
    return graphs, texts, table


def wanted(texts: list[list[int]]) -> list[list[int]]:
    """What is drafted after texts."""
    table = torch.zeros(len(texts), MOST, dtype=torch.int32)
    for row, text in enumerate(texts):
        table[row, : len(text)] = torch.tensor(text)
    lengths = torch.tensor([len(text) for text in texts])
    return ngram_match(table, lengths, 1, 2, NUM_STEPS, fills=True).token_ids.tolist()


class Told:
    """What the host says of requests with texts, some of whose tokens are new."""

    def __init__(self, graphs: TextGraphs, lines: list[int]) -> None:
        self.graphs, self.lines = graphs, lines
        self.texts = [list[int]() for _ in lines]

    def draft(self, new: list[list[int]]) -> list[list[int]] | None:
        starts = [len(text) for text in self.texts]
        for text, tokens in zip(self.texts, new, strict=True):
            text += tokens
        slots = [line * (MOST + 1) + at for line, start, tokens in zip(self.lines, starts, new, strict=True)
                 for at in range(start, start + len(tokens))]  # fmt: skip
        rows = NewRows(
            np.array([token for tokens in new for token in tokens], np.int64), [len(tokens) for tokens in new]
        )
        lengths = np.array([len(text) for text in self.texts])
        found = self.graphs.draft(rows, np.array(slots, np.int64), np.array(self.lines), lengths)
        return None if found is None else found.tolist()


def random_ids(count: int, generator: np.random.Generator) -> list[int]:
    return generator.integers(NUM_IDS, size=count).tolist()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_drafts_after_verdicts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are followed without anything sent, begun before the host has read them or not; anything else is sent."""
    graphs, _, memory = made()
    sends, send = [], StaticTexts.send
    monkeypatch.setattr(StaticTexts, "send", lambda *args: (sends.append(args), send(*args)))
    random = np.random.default_rng(size)
    told = Told(graphs, [5, 0, 2][:size])
    assert told.draft([random_ids(4, random) for _ in range(size)]) == wanted(told.texts)
    num_begun = 0
    for turn in range(12):
        counts = random.integers(NUM_STEPS + 1, size=size).tolist()
        emitted = [random_ids(NUM_STEPS + 1, random) for _ in range(size)]
        memory.numbers[PLACES.num_accepted :][:size] = torch.tensor(counts)
        memory.numbers[PLACES.token_ids :][: size * (NUM_STEPS + 1)] = torch.tensor(emitted).flatten()
        if turn % 3:  # else the host is first
            graphs.begin_next(PLACES, [NUM_STEPS] * size)
            num_begun += graphs._num_begun
        memory.judged = Judged(counts, emitted, PLACES)
        new = [tokens[: count + 1] for tokens, count in zip(emitted, counts, strict=True)]
        if turn == 7:
            new[0][-1] = (new[0][-1] + 1) % NUM_IDS  # a host's rule chose another one
        if max(map(len, told.texts)) > MOST - 2 * NUM_STEPS:
            break
        assert told.draft(new) == wanted(told.texts)
    assert turn > 6
    assert num_begun >= 4
    assert len(sends) <= 4  # the first, where the verdict gets a place, after what was changed


def test_what_begins_for_nothing_leaves_texts_right() -> None:
    graphs, _, memory = made()
    random = np.random.default_rng(0)
    told = Told(graphs, [1, 3])
    told.draft([random_ids(4, random), random_ids(3, random)])
    for turn in range(8):
        memory.numbers[PLACES.num_accepted :][:2] = torch.tensor([turn % 4, 2])
        memory.numbers[PLACES.token_ids :][:8] = torch.tensor(random_ids(8, random))
        graphs._share_followed = 1.0
        graphs.begin_next(PLACES, [NUM_STEPS] * 2)
        memory.judged = None  # and then tokens come that the host chose
        new = [random_ids(1 + turn % 3, random), random_ids(turn % 2, random)]
        assert told.draft(new) == wanted(told.texts)


def test_nothing_is_written_behind_a_text() -> None:
    graphs, texts, memory = made()
    random = np.random.default_rng(0)
    told, other = Told(graphs, [2]), Told(graphs, [3])
    other.draft([random_ids(4, random)])
    before = texts[3].clone()
    for size in [1] * (MOST - 1):
        memory.numbers[PLACES.num_accepted] = NUM_STEPS
        memory.judged = None
        graphs._share_followed = 1.0
        graphs.begin_next(PLACES, [NUM_STEPS])
        assert told.draft([random_ids(size, random)]) == wanted(told.texts)
    assert torch.equal(texts[3], before)


def test_what_is_not_recorded_is_not_done() -> None:
    graphs, texts, _ = made()
    before = texts.clone()
    told = Told(graphs, [0, 2, 1])
    assert told.draft([[2, 1] * 2, [1] * 5, [1, 2, 1]]) == wanted(
        told.texts
    )  # there is room for those of a fourth one
    texts.copy_(before)
    assert Told(graphs, [0]).draft([[1] * 9]) is None  # as a prompt
    assert Told(graphs, [*range(5)]).draft([[1]] * 5) is None
    assert torch.equal(texts, before)


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [(Rerun(failure="not permitted"), "not permitted"), (Rerun(spoil=2.0), "a replay gave other tokens")],
)
def test_a_device_that_cannot_record(recorder: Rerun, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    graphs, _, _ = made(recorder)
    assert reason in caplog.text
    assert Told(graphs, [0]).draft([[1, 2, 1]]) is None
