"""`ngram_match` against plain Python and the plugin's host matcher, on random and repetitive texts."""

import pytest
import torch
from kernelcheck import POISON

from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.ngram_match import ChainDraft, ngram_match


def naive(text: list[int], count: int, shortest: int, longest: int, keeps_first: bool) -> list[int]:
    """What `ngram_match` promises for one text."""
    size = len(text)
    for length in range(min(longest, size - 1), shortest - 1, -1):
        after = [end for end in range(length, size) if text[end - length : end] == text[size - length :]]
        if after:
            source = after[0] if keeps_first else after[-1]
            drafted = list(text)
            for step in range(count):
                drafted.append(drafted[source + step])
            return drafted[size:][: size - source] if keeps_first else drafted[size:]
    return []


def check(
    texts, shortest, longest, width, device, max_nodes=None, *, dtype=torch.int32, columns=None, **options
):
    """Run on `device` into poisoned outputs, compare with `naive`, and return what came out."""
    columns = max(1, *map(len, texts)) if columns is None else columns
    tokens = torch.full(
        (len(texts), columns), texts[0][-1] if texts[0] else 0, dtype=dtype
    )  # as padding would match
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = torch.tensor(text)
    out = ChainDraft(
        torch.full((len(texts), width), POISON, device=device), torch.full((len(texts),), POISON, device=device)
    )  # fmt: skip
    for keeps_first in (False, True):
        result = ngram_match(
            tokens.to(device), torch.tensor([len(text) for text in texts], device=device), shortest, longest, width,
            max_nodes=None if max_nodes is None else torch.tensor(max_nodes, device=device),
            keeps_first=keeps_first, out=out, **options,
        )  # fmt: skip
        assert result is out
        counts = [width] * len(texts) if max_nodes is None else max_nodes
        expected = [
            naive(text, min(width, count), shortest, longest, keeps_first)
            for text, count in zip(texts, counts, strict=True)
        ]
        fillers = [text[-1] if text and options.get("fills") else -1 for text in texts]
        assert out.num_nodes.tolist() == [len(row) for row in expected]
        assert out.token_ids.tolist() == [
            row + [filler] * (width - len(row)) for row, filler in zip(expected, fillers, strict=True)
        ]


def random_texts(num_ids: int, lengths: list[int]) -> list[list[int]]:
    return [torch.randint(0, num_ids, (length,)).tolist() for length in lengths]


@pytest.mark.parametrize("num_ids", [1, 2, 4, 50])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (2, 4), (3, 9)])
@pytest.mark.sampled(5, slow=0)
def test_random_texts(num_ids: int, shortest: int, longest: int, device: torch.device) -> None:
    torch.manual_seed(num_ids + longest)
    texts = random_texts(num_ids, [40, 0, 1, 2, 3, 9, 33])
    check(texts, shortest, longest, 5, device, config=LaunchConfig(16, num_warps=1))


def test_repetitive_texts(device: torch.device) -> None:
    texts = [[1, 2, 3] * 9, [7] * 20, [1, 2] * 6 + [3] + [1, 2] * 3, [5, 6, 7, 8, 5, 6, 9, 5, 6]]
    check(texts, 1, 4, 7, device, config=LaunchConfig(8, num_warps=1))
    check(texts, 2, 3, 1, device, dtype=torch.int64)


@pytest.mark.parametrize("columns", [1, 16, 17, 5000])
def test_widths_of_the_buffer(columns: int, device: torch.device) -> None:
    torch.manual_seed(columns)
    check(random_texts(3, [columns, columns // 2, min(columns, 5)]), 1, 3, 4, device, columns=columns)


def test_max_nodes_caps_each_request(device: torch.device) -> None:
    texts = [[1, 2, 3, 1, 2]] * 4
    check(texts, 1, 3, 6, device, [0, 2, 6, 9])


def test_the_last_token_fills_rows(device: torch.device) -> None:
    check([[1, 2, 3, 1, 2], [4, 5, 6], [7, 7]], 1, 3, 6, device, [2, 6, 9], fills=True)


def test_a_match_far_away_and_one_across_tiles(device: torch.device) -> None:
    torch.manual_seed(1)
    text = torch.randint(10, 10_000, (200,)).tolist()
    text[61:66] = text[-5:] = [1, 2, 3, 4, 5]  # crosses the border at 64
    check([text, text[:150] + text[61:64]], 2, 5, 8, device, config=LaunchConfig(64, num_warps=1))


def test_a_text_begins_where_its_row_begins(device: torch.device) -> None:
    check([[3, 3, 3, 1], [2, 9, 1, 2]], 2, 2, 3, device)


def test_a_view_of_a_wider_buffer(device: torch.device) -> None:
    wide = torch.tensor([[9, 1, 2, 3, 1, 2, 9], [9, 4, 4, 4, 8, 4, 9]], device=device)
    result = ngram_match(wide[:, 1:6], torch.tensor([5, 5], device=device), 1, 2, 2)
    assert result.token_ids.tolist() == [[3, 1], [8, 4]]


def test_texts_in_any_line(device: torch.device) -> None:
    tokens = torch.tensor([[1, 2, 3, 1, 2], [7] * 5, [4, 5, 6, 4, 0], [9] * 5], device=device)
    given = torch.tensor([5, 5, 4, 5], device=device), 1, 2, 3
    lines = torch.tensor([2, 0], device=device)
    assert ngram_match(tokens, *given, lines=lines).token_ids.tolist() == [[5, 6, 4], [3, 1, 2]]
    found = ngram_match(tokens, *given, lines=lines.flip(0), fills=True, keeps_first=True)
    assert found.token_ids.tolist() == [[3, 1, 2], [5, 6, 4]]
    lengths = torch.tensor([5, 5, 2, 5], device=device)
    assert ngram_match(tokens, lengths, 1, 2, 3, lines=lines[:1], fills=True).token_ids.tolist() == [
        [5, 5, 5]
    ]
    assert ngram_match(tokens, *given, lines=lines[:0]).token_ids.shape == (0, 3)


def test_drafts_are_those_of_the_host_matcher(device: torch.device) -> None:
    draft = pytest.importorskip("specdec_plugin_ngram.reference").draft
    torch.manual_seed(2)
    texts = random_texts(3, [30, 12, 5, 1])
    tokens = torch.zeros((4, 30), dtype=torch.int64)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = torch.tensor(text)
    lengths = torch.tensor([30, 12, 5, 1], device=device)
    for match, keeps_first in (("recent", False), ("first", True)):
        result = ngram_match(tokens.to(device), lengths, 1, 4, 6, keeps_first=keeps_first)
        rows = [
            row[:count]
            for row, count in zip(result.token_ids.tolist(), result.num_nodes.tolist(), strict=True)
        ]
        assert rows == [draft(text, 6, 1, 4, match) for text in texts]


def test_no_requests(device: torch.device) -> None:
    empty = torch.empty((0, 4), dtype=torch.int64, device=device)
    assert ngram_match(empty, empty[:, 0].contiguous(), 1, 2, 3).token_ids.shape == (0, 3)


def test_wrong_arguments_are_named() -> None:
    tokens, lengths = torch.zeros((2, 4), dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    for name, call in {
        "tokens": lambda: ngram_match(tokens.float(), lengths, 1, 2, 3),
        "num_tokens": lambda: ngram_match(tokens, lengths[:1], 1, 2, 3),
        "lines": lambda: ngram_match(tokens, lengths, 1, 2, 3, lines=lengths.float()),
        "max_nodes": lambda: ngram_match(tokens, lengths, 1, 2, 3, max_nodes=lengths.float()),
        "shortest=0": lambda: ngram_match(tokens, lengths, 0, 2, 3),
        "longest=1": lambda: ngram_match(tokens, lengths, 2, 1, 3),
        "width=0": lambda: ngram_match(tokens, lengths, 1, 2, 0),
        "out.token_ids": lambda: ngram_match(tokens, lengths, 1, 2, 3, out=ChainDraft(tokens, lengths)),
        "block=3": lambda: LaunchConfig(3, 1),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()


MUTANTS = {
    "lets the end of the text match itself": ("agrees = ends < last", "agrees = ends <= last"),
    "forgets where a text begins": ("agrees & (ends >= back)", "agrees"),
    "forgets what has disagreed": ("agrees = agrees & (tl.load(tokens_ptr + ends", "agrees = (tl.load(tokens_ptr + ends"),
    "counts matches that are too short": ("lengths >= shortest", "lengths >= 1"),
    "prefers place to length": ("lengths * LENGTH_UNIT + places", "LENGTH_UNIT + places"),
    "takes the last for the first": ("    (size, width), columns", "    keeps_first = False\n    (size, width), columns"),
    "reads on behind the text": ("source + steps % period", "source + steps"),
    "ignores what may be drafted": ("    if HAS_MAX_NODES:", "    if False:"),
    "matches in a line of its own": ("    if HAS_LINES:", "    if False:"),
    "looks at the first tile only": ("mask=tiles < num_tiles, other=0), 0)", "mask=tiles < 1, other=0), 0)"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu, config = torch.device("cpu"), LaunchConfig(16, num_warps=1)

    def check_all() -> None:
        test_a_text_begins_where_its_row_begins(cpu)
        torch.manual_seed(3)
        texts = random_texts(2, [40, 24, 5, 3])
        check([*texts, [7] * 3], 2, 4, 5, cpu, [5, 3, 0, 5, 4], config=config, columns=48)
        check([[1, 1]], 2, 2, 2, cpu, columns=4)
        test_texts_in_any_line(cpu)

    check_mutant("ngram_match", None if name is None else MUTANTS[name], check_all)
