"""Follows the tokens that the target chooses along drafted paths; in a chain every node is its predecessor's child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.noise import row_operations

NOT_NUMBERS = "the logits are not numbers"


def accept_path(
    drawn: list[int], row: Sequence[int], parents: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Return the accepted nodes and the emitted tokens, given the token drawn at the root and after each node.

    Siblings may be equal, and the draft may continue only after a later one. The result is the longest of the
    paths that follow the drawn tokens, and the first of equally long ones.

    Args:
        drawn: `[num_nodes + 1]` tokens; entry 0 belongs to the last committed token.
        row: `[num_nodes]` drafted ids.
        parents: `[num_nodes]` or None for a chain.
    """
    last = -1
    if parents is None:
        while last + 1 < len(row) and row[last + 1] == drawn[last + 1]:
            last += 1
        nodes = list(range(last + 1))
    else:
        depths = {-1: 0}  # of the nodes that follow the drawn tokens
        for node, token in enumerate(row):
            parent = parents[node]
            if parent in depths and token == drawn[parent + 1]:
                depths[node] = depths[parent] + 1
                if depths[node] > depths[last]:
                    last = node
        nodes = path_to(last, parents)
    return nodes, [*(row[node] for node in nodes), drawn[last + 1]]


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """Return the nodes from the root's child down to a node; none for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def greedy_verdict(scores: Scores, batch: VerifyBatch) -> Verdict:
    """Return the longest paths of argmax tokens; ties go to the lowest id."""
    return accept_paths(row_operations(scores.logits.device).best_ids(scores.logits), batch)


def accept_paths(drawn: Sequence[int], batch: VerifyBatch) -> Verdict:
    """Return the verdict of paths along drawn tokens, one token for every row of the logits.

    Args:
        drawn: `[R]`.
        batch: the drafts, and which row is whose.
    """
    parents: Sequence[Sequence[int] | None] = batch.parents or [None] * len(batch.nodes)
    found = [
        accept_path(list(drawn[start : start + len(row) + 1]), row, links)
        for start, row, links in zip(batch.row_starts, batch.nodes, parents, strict=True)
    ]
    return Verdict([nodes for nodes, _ in found], [emitted for _, emitted in found])


def raise_not_numbers() -> None:
    """Raise the error for logits that are not numbers."""
    raise FloatingPointError("the target's logits are not numbers; nothing can be sampled from them")


def valid_rows(scores: Scores) -> Scores:
    """Return scores whose p-logits are numbers, with `Scores.is_valid`.

    The other rows become uniform: any sampler can draw from them, and the drawn tokens are discarded. On a
    device the mask stays there to avoid a synchronisation, so it is never None.
    """
    is_valid = row_operations(scores.logits.device).valid_rows(scores.logits)
    if is_valid is None:
        return scores
    return replace(scores, logits=scores.logits.masked_fill(~is_valid[:, None], 0.0), is_valid=is_valid)
