"""Templates of new samplers and scorers."""

SAMPLER = '''\
"""$module: a way of verifying drafts."""

import torch

from specdec import Sampler, Scores, Verdict, VerifyBatch, hookimpl
from specdec.noise import exponentials


class $cls(Sampler):
    """Accepts what equals the target's own draw: put your rule in its place."""

    name = "$module"
    api_version = 1
    is_lossless = True

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        keys = zip(batch.seeds, batch.num_tokens, batch.sample_indices, batch.num_nodes, strict=True)
        rows = [(seed, at + n, sample, 0) for seed, at, sample, nodes in keys for n in range(nodes + 1)]
        a, b, c, d = torch.tensor(rows, dtype=torch.int64, device=scores.logits.device).reshape(-1, 4).T
        race = exponentials(a, b, c, d, scores.logits.shape[-1]) / scores.logits.softmax(-1)
        drawn, best, tokens = race.argmin(-1).tolist(), scores.logits.argmax(-1).tolist(), []
        for i, row in enumerate(batch.nodes):
            here = (best if batch.sampling_params[i].is_greedy else drawn)[batch.row_starts[i] :]
            tokens.append(here[: 1 + next(n for n, token in enumerate(here) if [*row[n : n + 1]] != [token])])
        return Verdict([range(len(row) - 1) for row in tokens], tokens)


@hookimpl
def specdec_register_samplers() -> type[Sampler]:
    return $cls
'''

SCORER = '''\
"""$module: a way of running the target over drafts."""

from specdec import ScoreBatch, Scorer, Scores, hookimpl
from specdec_runtime import TransformersScorer


class $cls(TransformersScorer):
    """Core's own scorer: put your way of running the target in place of the call of `super()`."""

    name = "$module"
    api_version = 1

    def score(self, batch: ScoreBatch) -> Scores:
        return super().score(batch)


@hookimpl
def specdec_register_scorers() -> type[Scorer]:
    return $cls
'''
