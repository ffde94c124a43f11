"""The distributions of drafts, as vLLM's V2 rejection sampler reads them: it divides by the temperature and normalises."""

from __future__ import annotations

import torch

from specdec.interfaces import CheckedDraft, DraftSampling, DrawnNodes
from specdec_vllm.v2.probs import DraftLogits

LINES, WIDTH, VOCAB = 4, 2, 5


def read(logits: DraftLogits, line: int, temperature: float) -> torch.Tensor:
    return (logits.tensor[line] / temperature).softmax(-1)


def test_drawn_tokens_have_their_q_and_others_are_point_masses() -> None:
    logits = DraftLogits(LINES, WIDTH, VOCAB, torch.device("cpu"))
    q = torch.rand(2, 3, VOCAB, generator=torch.Generator().manual_seed(3))
    q /= q.sum(-1, keepdim=True)
    drawn = DrawnNodes(torch.tensor([[3, 1], [2, -1]]), q, DraftSampling.IID)
    draft = CheckedDraft(((3, 1), (2,)), drawn=drawn)
    nodes = torch.tensor(
        [[4, 4], [3, 1], [2, 0]]
    )  # the first request has no draft, the last one a short draft
    lines, temperature = torch.tensor([2, 0, 3]), torch.tensor([0.7, 9.0, 1.0, 0.4])
    logits.write(nodes, lines, temperature, draft, [1, 2])
    point = torch.eye(VOCAB)
    assert torch.equal(read(logits, 2, 1.0), point[[4, 4]])
    torch.testing.assert_close(read(logits, 0, 0.7), q[0, :2])
    torch.testing.assert_close(read(logits, 3, 0.4), torch.stack([q[1, 0], point[0]]))


def test_ids_of_a_draft_vocabulary_are_mapped_and_rows_without_q_are_point_masses() -> None:
    logits = DraftLogits(LINES, WIDTH, VOCAB, torch.device("cpu"))
    q = torch.tensor([[[0.25, 0.75]] * 3, [[0.5, 0.5]] * 3])
    drawn = DrawnNodes(
        torch.tensor([[4, 1], [4, 4]]), q, DraftSampling.IID,
        has_probs=torch.tensor([True, False]), vocab_map=torch.tensor([4, 1]),
    )  # fmt: skip
    draft = CheckedDraft(((4, 1), (4, 4)), drawn=drawn)
    logits.write(torch.tensor([[4, 1], [4, 4]]), torch.tensor([0, 1]), torch.ones(LINES), draft, [0, 1])
    torch.testing.assert_close(read(logits, 0, 1.0), torch.tensor([[0.0, 0.75, 0, 0, 0.25]] * 2))
    assert torch.equal(read(logits, 1, 1.0), torch.eye(VOCAB)[[4, 4]])


def test_nothing_from_a_replaced_id_on_has_a_q() -> None:
    logits = DraftLogits(LINES, WIDTH, VOCAB, torch.device("cpu"))
    q = torch.full((1, 3, VOCAB + 2), 1 / (VOCAB + 2))
    drawn = DrawnNodes(torch.tensor([[VOCAB + 1, 1]]), q, DraftSampling.IID)
    logits.write(
        torch.tensor([[0, 1]]),
        torch.tensor([0]),
        torch.ones(LINES),
        CheckedDraft(((0, 1),), drawn=drawn),
        [0],
    )
    assert torch.equal(read(logits, 0, 1.0), torch.eye(VOCAB)[[0, 1]])
