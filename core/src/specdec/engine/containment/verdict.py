"""Checks what a sampler returns: its accepted nodes are a path of the draft, and its tokens those of the nodes and one more."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int

import torch

from specdec.errors import PluginError, described
from specdec.interfaces.sampler import Listed, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores


def check_verdict(verdict: object, batch: VerifyBatch, scores: Scores, sampler: str) -> Verdict:
    """Return an own copy of a verdict in exact `int`s, which answer comparisons as they should, with `is_valid`.

    Args:
        verdict: the result of `Sampler.verify`.
        batch: what was verified.
        scores: its scores.
        sampler: name of the sampler, for the error.

    Raises:
        PluginError: if it does not belong to its batch; names the sampler and what it must return.
    """
    own = verdict
    if isinstance(verdict, Verdict):
        valid = (
            verdict.is_valid
            if scores.is_valid is None or verdict.is_valid is not None
            else scores.is_valid.tolist()
        )
        try:
            valid = None if valid is None else [*map(bool, valid)]
            nodes, tokens = (
                [[*map(as_int, row)] for row in rows] for rows in (verdict.accepted_nodes, verdict.token_ids)
            )
        except Exception as error:  # whatever a plugin's own types raise
            raise PluginError(
                f"sampler {sampler!r}: verify returned a Verdict that cannot be read ({described(error)}): give accepted_nodes "
                "and token_ids as rows of whole numbers, is_valid as booleans"
            ) from error
        if valid is not None and len(valid) != len(scores.logits):
            raise PluginError(
                f"sampler {sampler!r}: verify returned {len(valid)} is_valid for {len(scores.logits)} rows"
            )
        listed = None if verdict.listed is None else _exact(verdict.listed, tokens, sampler)
        has_tensors = verdict.top_k is not None or verdict.paths is not None
        if has_tensors and (wrong := _wrong_tensor(verdict, batch, scores)):
            raise PluginError(f"sampler {sampler!r}: verify returned {wrong}")
        own = Verdict(nodes, tokens, valid, listed, verdict.top_k, verdict.paths)
    problem = problem_of(own, batch, scores.logits.shape[1])
    if problem is not None:
        raise PluginError(f"sampler {sampler!r}: verify returned {problem}")
    assert isinstance(own, Verdict)
    return own


def _wrong_tensor(verdict: Verdict, batch: VerifyBatch, scores: Scores) -> str | None:
    """Return which tensor of a verdict has another type or shape than it must have, as `problem_of` does."""
    num_rows = len(scores.raw_logits)
    if verdict.top_k is not None:
        pair = [one for one in verdict.top_k if type(one) is torch.Tensor]
        if len(pair) != 2 or type(verdict.top_k) is not tuple or len(verdict.top_k) != 2:
            return "a top_k that is not two tensors"
        (ids, logprobs), shapes = pair, [tuple(one.shape) for one in pair]
        if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] != num_rows:
            return f"top_k of shapes {shapes[0]} and {shapes[1]}: give [{num_rows}, num_top_k] of both"
        if ids.is_floating_point() or not logprobs.is_floating_point():
            return f"top_k in {ids.dtype} and {logprobs.dtype}: give whole numbers and floats"
    paths: object = verdict.paths
    if paths is not None:
        if not isinstance(paths, torch.Tensor) or paths.is_floating_point():
            return "paths that are no tensor of whole numbers"
        if paths.ndim != 2 or len(paths) != len(batch.nodes):
            return f"paths of shape {tuple(paths.shape)}: give [{len(batch.nodes)}, N]"
    return None


def _exact(listed: Listed, tokens: Sequence[Sequence[int]], sampler: str) -> Listed:
    """Return an own copy of listed log probabilities, those of every token of a row."""
    try:
        found = {
            row: [
                (float(p), int(rank), [*map(int, ids)], [*map(float, values)])
                for p, rank, ids, values in of_row
            ]
            for row, of_row in listed.items()
        }
        if all(
            len(of_row) == len(tokens[row]) and all(len(ids) == len(values) for *_, ids, values in of_row)
            for row, of_row in found.items()
        ):
            return found
        reason = "not one list for each of its tokens, with a value for each id"
    except Exception as error:  # whatever a plugin's own types raise
        reason = f"{type(error).__name__}: {error}"
    raise PluginError(
        f"sampler {sampler!r}: verify returned listed log probabilities that cannot be read ({reason})"
    )


def problem_of(verdict: object, batch: VerifyBatch, vocab_size: int) -> str | None:
    """Return what is wrong with a verdict, as the end of a sentence that begins with "verify returned"; None if nothing is."""
    if not isinstance(verdict, Verdict):
        return f"{type(verdict).__name__}, not a Verdict"
    nodes, token_ids, size = verdict.accepted_nodes, verdict.token_ids, len(batch.nodes)
    if len(nodes) != size or len(token_ids) != size:
        return f"{len(nodes)} rows of accepted_nodes and {len(token_ids)} of token_ids for a batch of {size} rows"
    for row, (path, emitted, drafted) in enumerate(zip(nodes, token_ids, batch.nodes, strict=True)):
        if len(emitted) != len(path) + 1:
            given = f"{len(emitted)} token ids with {len(path)} accepted nodes in row {row}"
            return f"{given}: give the accepted tokens and one more"
        if path and not (min(path) >= 0 and max(path) < len(drafted)):
            return f"accepted nodes {list(path)} in row {row}, whose draft has {len(drafted)} nodes"
        if not (min(emitted) >= 0 and max(emitted) < vocab_size):
            wrong = next(t for t in emitted if not 0 <= t < vocab_size)
            return f"token id {wrong}, outside the vocabulary of {vocab_size}"
        for place, node in enumerate(path):
            before, parent = path[place - 1] if place else -1, node - 1
            if batch.parents is not None:
                parent = batch.parents[row][node]
            if parent != before:
                return f"accepted nodes {list(path)} in row {row}: the parent of node {node} is {parent}, not {before}"
            if emitted[place] != drafted[node]:
                return f"token id {emitted[place]} for node {node} of row {row}, which is {drafted[node]}"
    return None
