"""An engine's side of the contract, reduced to what prompt lookup sees."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
import torch

from specdec.interfaces import Draft, Draws, ProposeBatch, Proposer, RequestTable, TargetInfo
from specdec.sampling_params import SamplingParams
from specdec_plugin_ngram import NgramConfig, NgramProposer
from specdec_plugin_ngram.gpu import NgramGpuProposer

NO_DRAWS = cast(Draws, None)


@dataclass(frozen=True)
class Delivery:
    """What one step brings for one request."""

    start: int
    token_ids: list[int]
    max_nodes: int = 5


@dataclass
class Feed:
    """Delivers tokens to a proposer and keeps the text it should then know."""

    proposer: Proposer
    texts: dict[str, list[int]] = field(default_factory=dict)

    def propose(self, deliveries: Mapping[str, Delivery]) -> Draft:
        for request_id, delivery in deliveries.items():
            kept = self.texts.get(request_id, [])[: delivery.start]
            self.texts[request_id] = kept + delivery.token_ids
        return self.proposer.propose(self._batch(dict(deliveries)))

    def step(self, deliveries: Mapping[str, Delivery]) -> dict[str, list[int]]:
        draft = self.propose(deliveries)
        assert draft.parents is None
        assert draft.node_probs is None
        assert draft.token_ids.dtype == torch.int64
        rows = [[token for token in row if token != -1] for row in draft.token_ids.tolist()]
        padded = [row + [-1] * (draft.token_ids.shape[1] - len(row)) for row in rows]
        assert draft.token_ids.tolist() == padded  # -1 only at the end
        if draft.rows is not None:
            assert [list(row) for row in draft.rows] == rows
        return dict(zip(deliveries, rows, strict=True))

    def append(self, request_id: str, *token_ids: int, max_nodes: int = 5) -> list[int]:
        start = len(self.texts.get(request_id, []))
        return self.step({request_id: Delivery(start, list(token_ids), max_nodes)})[request_id]

    def _batch(self, deliveries: dict[str, Delivery]) -> ProposeBatch:
        rows = list(deliveries.values())
        size = len(rows)
        new_token_ids = np.array([token for row in rows for token in row.token_ids], dtype=np.int32)
        new_token_ids.flags.writeable = False
        info = self.proposer.target_info
        table, texts = RequestTable.on(info.device, len(rows), info.max_model_len), list[np.ndarray]()
        for request_id in deliveries:
            texts.append(np.array(self.texts[request_id], dtype=np.int32))
        lines = [*range(size)][::-1]  # any order
        table.write(lines, [0] * size, texts)
        return ProposeBatch(
            request_ids=tuple(deliveries),
            max_nodes=[row.max_nodes for row in rows],
            num_tokens=[row.start + len(row.token_ids) for row in rows],
            num_prompt_tokens=[1] * size,
            starts=[row.start for row in rows],
            counts=[len(row.token_ids) for row in rows],
            new_token_ids=new_token_ids,
            last_num_drafted=[0] * size,
            last_num_accepted=[0] * size,
            sampling_params=(SamplingParams(),) * size,
            draws=NO_DRAWS,
            token_ids_of=texts.__getitem__,
            table=table,
            lines=lines,
        )


def target_info(device: str = "cpu", max_model_len: int = 1024, max_num_seqs: int = 2) -> TargetInfo:
    return TargetInfo(
        vocab_size=1000,
        hidden_size=8,
        num_layers=1,
        max_model_len=max_model_len,
        dtype=torch.float32,
        device=torch.device(device),
        eos_token_ids=(),
        tokenizer_fingerprint=None,
        max_num_seqs=max_num_seqs,
    )


def config(**keys: object) -> NgramConfig:
    return NgramConfig.model_validate({"num_speculative_tokens": 5, **keys})


@pytest.fixture(scope="session")
def make_feed() -> Callable[..., Feed]:
    """Return a maker of feeds for `ngram`, taking configuration keys."""
    return lambda **keys: Feed(NgramProposer(config(**keys), target_info()))


@pytest.fixture(scope="session")
def make_device_feed() -> Callable[..., Feed]:
    """Return a maker of feeds for `ngram_gpu`, on the CPU."""
    return lambda **keys: Feed(NgramGpuProposer(config(**keys), target_info(max_num_seqs=4)))


@pytest.fixture(scope="session")
def delivery() -> type[Delivery]:
    return Delivery


@pytest.fixture(scope="session")
def make_target_info() -> Callable[..., TargetInfo]:
    return target_info


@pytest.fixture(scope="session")
def make_feed_of() -> type[Feed]:
    """Return a maker of feeds for a proposer."""
    return Feed
