"""Recorded draft loops of trees: which nodes they choose, and what the passes over them see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.recorder import Rerun, StandInAttention

from specdec.engine.sequence import Sequence
from specdec.engine.speculation.plugin_view import EngineDraws
from specdec.sampling_params import SamplingParams
from specdec_kernels.cuda.graphs import DraftGraphs
from specdec_kernels.cuda.graphs.static_start import Reads
from specdec_runtime.interfaces import ChainRules, ChainWork, NewRows, PackedBatch

NUM_IDS, WIDTH = 12, 3
FIRST_SLOTS, CACHED, DEPTHS = [0, 128, 256], [5, 40, 9], [3, 1, 2]


def made_up(tokens: torch.Tensor, positions: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Logits `[T, NUM_IDS]` that depend on all that a pass sees."""
    mixed = tokens[:, None] * 7.0 + positions[:, None] * 3.0 + torch.arange(NUM_IDS) * 5.0
    return 2.0 * torch.sin(mixed + features.sum(1, keepdim=True))


def carried(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return features * 0.5 + tokens[:, None]


class Passes:
    """Stands in for a head: says where its rows are, and what they see."""

    def __init__(self, backend: StandInAttention) -> None:
        self.backend = backend
        self.seen: list[tuple[list[int], list[list[int]]]] = []

    def __call__(self, batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        rows = self.backend.rows
        assert rows is not None
        assert features is not None
        lengths, tables = rows.context_lens.tolist(), rows.block_tables.tolist()
        context = [table[:length] for table, length in zip(tables, lengths, strict=True)]
        self.seen.append((rows.slots.tolist(), context if rows.page_size == 1 else []))
        logits = made_up(batch.token_ids, batch.positions, features)
        if batch.logits_rows is not None:
            logits = logits[batch.logits_rows]
        return logits, carried(features, batch.token_ids)


def grown(
    logits: torch.Tensor, carry: torch.Tensor, cached: int, depth: int, sequence: Sequence
) -> list[tuple[float, int, tuple[int, ...], float]]:
    """All nodes of one tree, best first: joint confidence, token, path, and confidence given the parent."""
    temperature, draws = sequence.params.temperature, EngineDraws([sequence])
    nodes: list[tuple[float, int, tuple[int, ...], float]] = []
    frontier = [(0.0, (), logits, carry)]
    for step in range(depth):
        children = []
        for joint, path, own, features in frontier:
            scores = own.log_softmax(-1)
            if temperature > 0:
                scores = (scores / temperature).log_softmax(-1) + draws.coupled_noise([0], step + 1, NUM_IDS)[
                    0
                ]
            best = scores.softmax(-1).topk(WIDTH)
            for conf, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                children.append((joint + float(np.log(conf)), token, (*path, token), conf, features))
        nodes += [child[:4] for child in children]
        children.sort(key=lambda child: -child[0])
        frontier = []
        for joint, token, path, _, features in children[:WIDTH]:
            tokens, positions = torch.tensor([token]), torch.tensor([cached + step])
            frontier.append(
                (
                    joint,
                    path,
                    made_up(tokens, positions, features[None])[0],
                    carried(features[None], tokens)[0],
                )
            )
    return sorted(nodes, key=lambda node: -node[0])


def sequences_of(temperatures: list[float]) -> list[Sequence]:
    return [
        Sequence(
            str(i), np.arange(cached + 1, dtype=np.int32), SamplingParams(temperature=temperature),
            seed=100 + i, sample_index=i, max_num_tokens=500,
        )
        for i, (temperature, cached) in enumerate(zip(temperatures, CACHED, strict=True))
    ]  # fmt: skip


def path_of(node: int, ids: list[int], parents: list[int]) -> tuple[int, ...]:
    path: tuple[int, ...] = ()
    while node >= 0:
        path, node = (ids[node], *path), parents[node]
    return path


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("temperatures", [[0.0, 0.0, 0.0], [0.7, 0.0, 1.3]])
def test_it_chooses_the_nodes_of_most_joint_confidence(temperatures, is_after) -> None:
    backend = StandInAttention()
    passes, rules = Passes(backend), ChainRules(NUM_IDS, width=WIDTH, num_nodes=20)
    head = torch.empty(1, 4), Reads(lambda hidden, aux: hidden + aux[0])
    graphs = DraftGraphs(passes, Rerun(), backend, 512, 512, torch.device("cpu"), *head)
    sequences = sequences_of(temperatures)
    keys = EngineDraws(sequences).coupled_keys(range(3))
    for turn in range(3):
        torch.manual_seed(turn)
        passes.seen.clear()
        if is_after:
            tokens, states = torch.randint(0, NUM_IDS, (3,)), (torch.randn(3, 4), torch.randn(3, 4))
            features, before = states[0] + states[1], [cached - 1 for cached in CACHED]
            logits = made_up(tokens, torch.tensor(before), features)
            carry = carried(features, tokens)
            work = ChainWork(FIRST_SLOTS, before, 3, temperatures, keys, rules, (), DEPTHS)
            got = graphs.draft_after(NewRows(tokens.numpy(), [1, 1, 1], states), work)
        else:
            logits, carry = torch.randn(3, NUM_IDS), torch.randn(3, 4)
            work = ChainWork(FIRST_SLOTS, CACHED, 3, temperatures, keys, rules, (), DEPTHS)
            got = graphs.draft(logits, carry, work)
        assert got.parents is not None
        for row, (depth, sequence) in enumerate(zip(DEPTHS, sequences, strict=True)):
            expected = grown(logits[row], carry[row], CACHED[row], depth, sequence)
            assert len(expected) == WIDTH + (depth - 1) * WIDTH**2
            expected = expected[:20]
            ids, parents = got.token_ids[row].tolist(), got.parents[row].tolist()
            assert len(ids) == 20
            assert [path_of(node, ids, parents) for node in range(len(expected))] == [e[2] for e in expected]
            assert all(parent < node for node, parent in enumerate(parents[: len(expected)]))
            confidences = got.confidences[row, : len(expected)].tolist()
            assert confidences == pytest.approx([node[3] for node in expected], rel=1e-4)
        seen = [contexts for contexts in passes.seen if contexts[1]]  # not of the pass over new tokens
        assert len(seen) == (2, 6, 2)[turn]  # what is recorded runs twice more
        for start in range(0, len(seen), 2):
            check_passes(seen[start : start + 2])
    assert (graphs.num_plain, graphs.num_recordings, graphs.num_replays) == (2, 1, 1)


def check_passes(seen: list[tuple[list[int], list[list[int]]]]) -> None:
    """Nodes go behind the committed rows, and see these and their ancestors; rows that are deep enough write nowhere."""
    for step, (slots, contexts) in enumerate(seen):
        for row, (first, cached, depth) in enumerate(zip(FIRST_SLOTS, CACHED, DEPTHS, strict=True)):
            for place in range(WIDTH):
                node = row * WIDTH + place
                own = first + cached + step * WIDTH + place
                assert slots[node] == (own if depth > step + 1 else -1)
                if depth > step + 1:
                    assert contexts[node][:cached] == list(range(first, first + cached))
                    line = contexts[node][cached:]
                    assert (len(line), line[-1]) == (step + 1, own)
                    if step:
                        assert line[0] in range(first + cached, first + cached + WIDTH)
        assert slots[3 * WIDTH :] == [-1] * WIDTH


def test_models_draft_no_trees_by_it() -> None:
    backend = StandInAttention()
    assert DraftGraphs(Passes(backend), Rerun(), backend, 512, 512, torch.device("cpu")).max_tree_nodes == 0
