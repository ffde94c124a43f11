"""Templates of new proposers: one that uses tokens, one that reads hidden states, one that drafts trees."""

PROPOSER = '''\
"""$module: a way of guessing the next tokens."""

from pydantic import Field

from specdec import Draft, ProposeBatch, Proposer, ProposerConfig, TargetInfo, hookimpl


class ${cls}Config(ProposerConfig):
    max_distance: int | None = Field(None, ge=1, description="How far back to look, in tokens.")


class $cls(Proposer):
    """Drafts what followed the newest token when it last occurred: put your idea in its place."""

    name = "$module"
    api_version = 1
    Config = ${cls}Config

    def __init__(self, config: ${cls}Config, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._max_distance = config.max_distance or target.max_model_len

    def propose(self, batch: ProposeBatch) -> Draft:
        drafts = []
        for row, most in enumerate(batch.max_nodes):  # 0: draft nothing
            ids = batch.token_ids(row)[-self._max_distance - 1 :]
            earlier = (ids[:-1] == ids[-1]).nonzero()[0]
            start = earlier[-1] + 1 if len(earlier) else len(ids)
            drafts.append(ids[start : start + most].tolist())
        return Draft.from_lists(drafts)


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    return $cls
'''

HEAD = '''\
"""$module: guesses by the target's hidden states."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn.functional import normalize

from specdec import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
    hookimpl,
)


class ${cls}Config(ProposerConfig):
    min_similarity: float = Field(0.5, ge=-1, le=1, description="How like an earlier state must be (cosine).")


class $cls(Proposer):
    """Drafts what followed where the target's state was most like the newest: put your model in its place."""

    name = "$module"
    api_version = 1
    Config = ${cls}Config
    capabilities = frozenset({Capability.HIDDEN_STATES})

    def __init__(self, config: ${cls}Config, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._min_similarity = config.min_similarity
        self._states: dict[str, torch.Tensor] = {}  # [n, H] for each request: what chose its tokens

    def propose(self, batch: ProposeBatch) -> Draft:
        drafts, news = [], normalize(batch.hidden_states.float(), dim=-1).split(list(batch.counts))
        for row, (request_id, new) in enumerate(zip(batch.request_ids, news, strict=True)):
            held = self._states.get(request_id, new[:0])[: batch.starts[row]]
            self._states[request_id] = torch.cat((held, new))
            drafts.append(self._draft(batch, row))
        return Draft.from_lists(drafts)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for request_id in request_ids:
            self._states.pop(request_id, None)

    def _draft(self, batch: ProposeBatch, row: int) -> list[int]:
        ids, states = batch.token_ids(row), self._states[batch.request_ids[row]]
        most = batch.max_nodes[row]
        if most == 0 or len(ids) < 2 or len(states) != len(ids):  # others when states were not to be had
            return []
        likeness = states[:-1] @ states[-1]
        best = int(likeness.argmax())
        return ids[best + 1 : best + 1 + most].tolist() if likeness[best] >= self._min_similarity else []


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    return $cls
'''

TREE = '''\
"""$module: guesses several continuations at once."""

from pydantic import Field

from specdec import Capability, Draft, ProposeBatch, Proposer, ProposerConfig, TargetInfo, hookimpl


class ${cls}Config(ProposerConfig):
    num_branches: int = Field(2, ge=1, description="How many earlier occurrences are continued.")


class $cls(Proposer):
    """Drafts what followed the newest token each time it occurred: put your idea in its place."""

    name = "$module"
    api_version = 1
    Config = ${cls}Config
    capabilities = frozenset({Capability.TREE})

    def __init__(self, config: ${cls}Config, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._num_branches = config.num_branches

    def propose(self, batch: ProposeBatch) -> Draft:
        trees = [self._tree(batch, row) for row in range(batch.batch_size)]
        return Draft.from_lists([tokens for tokens, _ in trees], [parents for _, parents in trees])

    def _tree(self, batch: ProposeBatch, row: int) -> tuple[list[int], list[int]]:
        ids, most = batch.token_ids(row), batch.max_nodes[row]
        depth = -(-most // self._num_branches)
        earlier = (ids[:-1] == ids[-1]).nonzero()[0][::-1]  # the last one first: it is accepted most often
        tokens: list[int] = []
        parents: list[int] = []
        for start in earlier[: self._num_branches]:
            node = -1  # the newest token of the text
            for token in ids[start + 1 : start + 1 + depth].tolist():
                siblings = [n for n, parent in enumerate(parents) if parent == node]
                known = [n for n in siblings if tokens[n] == token]
                if not known and len(tokens) == most:
                    break
                if not known:
                    tokens.append(token)
                    parents.append(node)
                node = known[0] if known else len(tokens) - 1
        return tokens, parents


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    return $cls
'''
