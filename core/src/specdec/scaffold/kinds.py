"""What is written for each kind of plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specdec.registry import Group

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
dependencies = ["specdec-core>=$version,<$next_version"]

[project.entry-points."$group"]
$module = "$module"
"""

_PROPOSER = '''\
"""$module: a way of guessing the next tokens."""

from specdec import Draft, ProposeBatch, Proposer, hookimpl


class $cls(Proposer):
    """Drafts what followed the newest token when it last occurred: put your idea in its place."""

    name = "$module"

    def propose(self, batch: ProposeBatch) -> Draft:
        drafts = []
        for row, most in enumerate(map(min, batch.max_nodes, batch.max_depth)):
            ids = batch.token_ids(row)
            earlier = (ids[:-1] == ids[-1]).nonzero()[0]
            start = earlier[-1] + 1 if len(earlier) else len(ids)
            drafts.append(ids[start : start + most].tolist())
        return Draft.from_lists(drafts)


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    return $cls
'''

_PROPOSER_TEST = """\
from specdec.testing import ProposerConformance


class Test$cls(ProposerConformance):
    method = "$module"
    config = {"num_speculative_tokens": 4}
"""

_SAMPLER = '''\
"""$module: a way of verifying drafts."""

import torch

from specdec import Draft, Sampler, Scores, Verdict, VerifyBatch, hookimpl
from specdec.noise import exponentials


class $cls(Sampler):
    """Accepts nothing and draws from the target: put your rule in its place."""

    name = "$module"
    is_lossless = True

    def verify(self, scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict:
        logits = scores.logits[torch.tensor(scores.row_starts).long()]
        keys = torch.tensor([batch.seeds, batch.num_tokens, batch.sample_indices, [0] * len(logits)])
        race = exponentials(*keys.long(), logits.shape[-1]) / logits.softmax(-1).double()
        is_greedy = torch.tensor([params.is_greedy for params in batch.sampling_params]).bool()
        tokens = torch.where(is_greedy, logits.argmax(-1), race.argmin(-1)).tolist()
        return Verdict(accepted_nodes=[[]] * len(tokens), token_ids=[[token] for token in tokens])


@hookimpl
def specdec_register_samplers() -> type[Sampler]:
    return $cls
'''

_SAMPLER_TEST = """\
from specdec.testing import SamplerConformance


class Test$cls(SamplerConformance):
    sampler = "$module"
"""


@dataclass(frozen=True)
class Kind:
    """One kind of plugin."""

    group: Group
    files: Mapping[str, str]
    """Templates of `string.Template`, by path; paths are templates too."""


def _files(module: str, test: str) -> Mapping[str, str]:
    return MappingProxyType(
        {"pyproject.toml": _PYPROJECT, "$module.py": module, "tests/test_$module.py": test}
    )


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "proposer": Kind(Group.PROPOSERS, _files(_PROPOSER, _PROPOSER_TEST)),
        "sampler": Kind(Group.SAMPLERS, _files(_SAMPLER, _SAMPLER_TEST)),
    }
)
"""The kinds that there are."""
