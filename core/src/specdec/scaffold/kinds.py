"""What is written for each kind of plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specdec.registry import Group

_BUILD_SYSTEM = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

"""
"""What pip takes anyway where it is left out."""

_PYPROJECT = """\
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
    api_version = 1

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

from specdec import Draft, Sampler, Scores, Verdict, VerifyBatch, hookimpl
from specdec.noise import exponentials


class $cls(Sampler):
    """Accepts what equals the target's own draw: put your rule in its place."""

    name = "$module"
    api_version = 1
    is_lossless = True

    def verify(self, scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict:
        keys = zip(batch.seeds, batch.num_tokens, batch.sample_indices, batch.num_nodes, strict=True)
        rows = [(seed, at + n, sample, 0) for seed, at, sample, nodes in keys for n in range(nodes + 1)]
        a, b, c, d = draft.token_ids.new_tensor(rows).reshape(-1, 4).T
        race = exponentials(a, b, c, d, scores.logits.shape[-1]) / scores.logits.softmax(-1)
        drawn, best, tokens = race.argmin(-1).tolist(), scores.logits.argmax(-1).tolist(), []
        for i, row in enumerate(draft.host_rows or ()):
            here = (best if batch.sampling_params[i].is_greedy else drawn)[scores.row_of(i, -1) :]
            tokens.append(here[: 1 + next(n for n, token in enumerate(here) if row[n : n + 1] != (token,))])
        return Verdict([range(len(row) - 1) for row in tokens], tokens)


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


def _files(metadata: str, module: str, test: str) -> Mapping[str, str]:
    return MappingProxyType({"pyproject.toml": metadata, "$module.py": module, "tests/test_$module.py": test})


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "proposer": Kind(Group.PROPOSERS, _files(_BUILD_SYSTEM + _PYPROJECT, _PROPOSER, _PROPOSER_TEST)),
        "sampler": Kind(Group.SAMPLERS, _files(_PYPROJECT, _SAMPLER, _SAMPLER_TEST)),
    }
)
"""The kinds that there are."""
