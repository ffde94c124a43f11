"""`TARGET_TOP_K`: the ids and log probabilities at every verified node are those of `transformers`, rejected nodes too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, tokens_of
from speccheck.proposers import ScriptConfig, Scripted

from specdec import ConfigError, SamplingParams
from specdec.engine.speculation.top_k import top_k_of
from specdec.engine.step import Row, Step
from specdec.interfaces import (
    Capability,
    Draft,
    ProposeBatch,
    ProposerConfig,
    Scores,
    TargetInfo,
    Verdict,
)


class TopConfig(ScriptConfig):
    """How many ids."""

    count: int = 5


class Top(Scripted):
    """Keeps what it is given, beside the text that each token follows."""

    name: ClassVar[str] = "top"
    Config: ClassVar[type[ProposerConfig]] = TopConfig
    capabilities = frozenset({Capability.TREE, Capability.TARGET_TOP_K})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, TopConfig)
        self.num_top_k = config.count
        self.seen: list[tuple[list[int], list[int], list[float]]] = []
        self.before: dict[str, tuple[list[int], list[int], list[int]]] = {}
        """Text, nodes and parents of each request's last draft."""
        self.rejected = 0

    def propose(self, batch: ProposeBatch) -> Draft:
        draft = super().propose(batch)
        top = batch.top_k
        if top is not None:
            assert not top.top_ids.flags.writeable
            for row, node, token, ids, logprobs in zip(
                top.rows, top.nodes, top.token_ids, top.top_ids, top.logprobs, strict=True
            ):
                text, nodes, parents = self.before[batch.request_ids[row]]
                path, place = [], node
                while place >= 0:
                    path.insert(0, nodes[place])
                    place = parents[place]
                assert token == [*text, *path][-1]
                now = batch.token_ids(row).tolist()
                self.rejected += now[: len(text) + len(path)] != [*text, *path]
                self.seen.append(([*text, *path], ids.tolist(), logprobs.tolist()))
        for row, name in enumerate(batch.request_ids):
            nodes = [token for token in draft.token_ids[row].tolist() if token >= 0]
            parents = (
                list(range(-1, len(nodes) - 1)) if draft.parents is None else draft.parents[row].tolist()
            )
            self.before[name] = batch.token_ids(row).tolist(), nodes, parents
        return draft


def config(**keys: object) -> dict:
    return {"method": f"{__file__}:Top", "num_speculative_tokens": 4, **keys}


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize(
    "keys", [{}, {"kv_cache_memory_bytes": 60_000, "max_num_batched_tokens": 24}], ids=["", "tight"]
)
def test_ids_are_those_of_the_target(subject, shape: str, keys: dict) -> None:
    llm = make_llm(subject.model, config(texts=subject.texts, shape=shape, wrong=0.4), **keys)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    proposer = proposer_of(llm)
    assert engine_of(llm).metrics.proposer_errors == 0
    assert len(proposer.seen) > 100
    assert proposer.rejected > 20
    for text, ids, logprobs in proposer.seen[::7]:
        with torch.no_grad():
            expected = subject.model(torch.tensor([text])).logits[0, -1].log_softmax(-1)
        values, places = expected.topk(5)
        assert ids == places.tolist()
        np.testing.assert_allclose(logprobs, values.numpy(), atol=1e-4)


def test_they_are_before_any_sampling_parameter(subject) -> None:
    llm = make_llm(subject.model, config(texts=subject.texts))
    params = SamplingParams(
        temperature=3.0, top_k=1, logit_bias={7: 50.0}, max_tokens=6, seed=1, ignore_eos=True
    )
    llm.generate([subject.prompts[0]], params)
    for text, ids, _ in proposer_of(llm).seen:
        with torch.no_grad():
            assert ids[0] == int(subject.model(torch.tensor([text])).logits[0, -1].argmax())


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_the_number_is_checked(subject, count: int) -> None:
    with pytest.raises(ConfigError, match=f"num_top_k = {count}: give the number of ids, 1 to 1024"):
        make_llm(subject.model, config(count=count))


def test_more_than_the_vocabulary_are_all_of_it(subject) -> None:
    llm = make_llm(subject.model, config(texts=subject.texts, count=1000))
    llm.generate([subject.prompts[0]], greedy(4))
    assert {len(ids) for _, ids, _ in proposer_of(llm).seen} == {subject.model.config.vocab_size}


@dataclass(eq=False)
class Text:
    """What of a sequence is read."""

    token_ids: list[int]


@pytest.mark.parametrize("is_read", [False, True])
def test_a_request_with_a_row_that_is_not_numbers_is_left_out(is_read: bool) -> None:
    """Although the verdict does not say so: no token was drawn from that row."""
    logits = torch.randn(5, 7)
    logits[4, 2] = torch.nan
    first, second = Text([3]), Text([5])
    step = Step([Row(first, 0, 1), Row(second, 0, 1)], scores=Scores(logits, logits))
    step.sampled = step.rows
    step.rows[0].nodes, step.rows[0].first_logits = (1,), 0
    step.rows[1].nodes, step.rows[1].first_logits = (2, 4), 2
    values, ids = logits.log_softmax(-1).topk(3)
    verdict = Verdict([[0], []], [[1, 6], [0]], top_k=(ids, values) if is_read else None)
    assert [*top_k_of(step, 3, verdict)()] == [first]
    logits[4, 2] = 0.0
    values, ids = logits.log_softmax(-1).topk(3)
    verdict = Verdict([[0], []], [[1, 6], [0]], top_k=(ids, values) if is_read else None)
    found = [*top_k_of(step, 3, verdict)().values()]
    assert [part.token_ids for part in found] == [[3, 1], [5, 2, 4]]
    assert torch.equal(found[1].ids, ids[2:].int())
    assert torch.allclose(found[1].logprobs, values[2:], atol=1e-6)
