"""`append_tokens` against lists of Python: the reference, which is core's, and the kernel."""

from __future__ import annotations

import pytest
import torch

from specdec.interfaces import RequestTable
from specdec_kernels.triton.append_tokens import append_tokens

NUM_LINES, WIDTH, FREE = 7, 21, 900
LENGTHS = [3, 0, 19, 12, 20, 7, 1]


def made(device: torch.device) -> tuple[RequestTable, list[list[int]]]:
    texts = [[100 * line + place for place in range(length)] for line, length in enumerate(LENGTHS)]
    ids = torch.full((NUM_LINES, WIDTH), FREE, dtype=torch.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    return RequestTable(ids.to(device), torch.tensor(LENGTHS, device=device)), texts


@pytest.mark.parametrize("num_columns", [1, 2, 5, 17])
@pytest.mark.parametrize("lines", [[0, 2, 6], [4, 3, 2, 1, 0], [5]], ids=str)
@pytest.mark.sampled(5, slow=0)
def test_it_appends_what_was_emitted(lines: list[int], num_columns: int, device: torch.device) -> None:
    table, texts = made(device)
    emitted = [[1000 * row + column for column in range(num_columns)] for row in range(len(lines))]
    counts = [(row * 3) % num_columns for row in range(len(lines))]
    given = (torch.tensor(each, device=device) for each in (lines, counts, emitted))
    append_tokens(table, *given)
    for line, count, tokens in zip(lines, counts, emitted, strict=True):
        texts[line] = (texts[line] + tokens[: count + 1])[: WIDTH - 1]
    assert table.num_tokens.tolist() == [len(text) for text in texts]
    for row, text in zip(table.token_ids.tolist(), texts, strict=True):
        assert row[: len(text)] == text
        assert row[len(text) : -1] == [FREE] * (WIDTH - 1 - len(text)), "nothing else is written"


def test_what_a_proposer_wrote_stays_within_its_line(device: torch.device) -> None:
    table, texts = made(device)
    table.num_tokens[2], table.num_tokens[5] = -30, 10**9
    given = (torch.tensor(each, device=device) for each in ([2, 5], [1, 1], [[7, 8], [9, 9]]))
    append_tokens(table, *given)
    assert table.num_tokens.tolist() == [3, 0, 2, 12, 20, WIDTH - 1, 1]
    texts[2][:2] = [7, 8]
    for row, text in zip(table.token_ids.tolist(), texts, strict=True):
        assert row[: len(text)] == text


def test_wrong_arguments_are_named() -> None:
    table, _ = made(torch.device("cpu"))
    lines, counts, ids = torch.tensor([1, 2]), torch.tensor([0, 0]), torch.zeros(2, 3, dtype=torch.int64)
    for given, name in (
        ((table, lines.int(), counts, ids), "lines"),
        ((table, lines, counts[:1], ids), "num_accepted"),
        ((table, lines, counts, ids.int()), "token_ids"),
        ((RequestTable(table.token_ids.long(), table.num_tokens), lines, counts, ids), "table.token_ids"),
        ((RequestTable(table.token_ids, table.num_tokens[:2]), lines, counts, ids), "table.num_tokens"),
    ):
        with pytest.raises(ValueError, match=name):
            append_tokens(*given)


MUTANTS = {
    "appends padding": ("columns < tl.minimum(count, num_columns)", "columns < num_columns"),
    "forgets the last token": ("tl.load(num_accepted_ptr + request) + 1", "tl.load(num_accepted_ptr + request)"),
    "writes where a proposer says": ("tl.maximum(tl.load(num_tokens_ptr + line), 0)", "tl.load(num_tokens_ptr + line)"),
    "appends to other lines": ("line = tl.load(lines_ptr + request)", "line = request"),
    "is longer than its line": ("tl.minimum(start + count, width - 1)", "start + count"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_it_appends_what_was_emitted([4, 3, 2, 1, 0], 5, cpu)
        test_it_appends_what_was_emitted([0, 2, 6], 17, cpu)
        test_what_a_proposer_wrote_stays_within_its_line(cpu)

    check_mutant("append_tokens", None if name is None else MUTANTS[name], check_all)
