"""An engine's side of the contract, reduced to what suffix decoding sees."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pytest
import torch

from specdec.interfaces import Draft, Draws, FinishReason, ProposeBatch, TargetInfo
from specdec.sampling_params import SamplingParams
from specdec_plugin_suffix import SuffixConfig, SuffixProposer, cache

TREES = ("own", "arctic") if cache.has_arctic() else ("own",)
"""The implementations of suffix trees that are tested; `make arctic` installs the other one."""


@dataclass(frozen=True)
class Delivery:
    """What one step brings for one request."""

    start: int
    token_ids: list[int]
    max_nodes: int = 8


@dataclass
class Feed:
    """Delivers tokens to a proposer and keeps the text it should then know."""

    proposer: SuffixProposer
    num_prompt_tokens: int = 2
    texts: dict[str, list[int]] = field(default_factory=dict)
    draft: Draft | None = None
    params: SamplingParams = field(default_factory=SamplingParams)

    def step(self, deliveries: Mapping[str, Delivery]) -> dict[str, list[int]]:
        for request_id, delivery in deliveries.items():
            kept = self.texts.get(request_id, [])[: delivery.start]
            self.texts[request_id] = kept + delivery.token_ids
        self.draft = self.proposer.propose(self._batch(dict(deliveries)))
        rows = [[token for token in row if token != -1] for row in self.draft.token_ids.tolist()]
        assert [list(row) for row in self.draft.rows] == rows
        return dict(zip(deliveries, rows, strict=True))

    def append(self, request_id: str, *token_ids: int, max_nodes: int = 8) -> list[int]:
        start = len(self.texts.get(request_id, []))
        return self.step({request_id: Delivery(start, list(token_ids), max_nodes)})[request_id]

    def finish(self, request_id: str, reason: FinishReason = FinishReason.STOP) -> None:
        self.proposer.finish([request_id], reason)
        self.texts.pop(request_id, None)

    def learn(self, request_id: str, *token_ids: int) -> None:
        """Run a request with this response to its end."""
        self.append(request_id, 900, 901)
        self.append(request_id, *token_ids)
        self.finish(request_id)
        self.settle()

    def settle(self) -> None:
        """Run a step without requests, so that responses are learnt."""
        self.proposer.propose(self._batch({}))

    def confidence(self, row: int = 0) -> list[float]:
        return self.draft.confidence[row].tolist()

    def _batch(self, deliveries: dict[str, Delivery]) -> ProposeBatch:
        rows = list(deliveries.values())
        size = len(rows)
        new_token_ids = np.array([token for row in rows for token in row.token_ids], dtype=np.int32)
        new_token_ids.flags.writeable = False
        names = tuple(deliveries)
        return ProposeBatch(
            request_ids=names,
            max_nodes=tuple(row.max_nodes for row in rows),
            num_tokens=[row.start + len(row.token_ids) for row in rows],
            num_prompt_tokens=[self.num_prompt_tokens] * size,
            starts=[row.start for row in rows],
            counts=[len(row.token_ids) for row in rows],
            new_token_ids=new_token_ids,
            last_num_drafted=[0] * size,
            last_num_accepted=[0] * size,
            sampling_params=(self.params,) * size,
            draws=cast(Draws, None),
            token_ids_of=lambda row: np.array(self.texts[names[row]], dtype=np.int32),
        )


def target_info(**changes: object) -> TargetInfo:
    info = TargetInfo(
        vocab_size=1000,
        hidden_size=8,
        num_layers=1,
        max_model_len=1024,
        dtype=torch.float32,
        device=torch.device("cpu"),
        eos_token_ids=(),
        tokenizer_fingerprint="a" * 64,
    )
    return replace(info, **changes)


def proposer(info: TargetInfo | None = None, **keys: object) -> SuffixProposer:
    config = SuffixConfig.model_validate({"num_speculative_tokens": 8, **keys})
    made = SuffixProposer(config, info or target_info())
    made.load(None)
    return made


@contextmanager
def choice_of(name: str) -> Iterator[None]:
    """Let an implementation run in what is made meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "has_arctic", lambda: name == "arctic")
        yield


@pytest.fixture(scope="module", params=TREES)
def trees(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let each implementation run."""
    with choice_of(request.param):
        yield request.param


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name == "arctic" else ()) for name in TREES],
)
def trees_of_engines(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let each implementation run, for tests that run models: slow with the library."""
    with choice_of(request.param):
        yield request.param


@pytest.fixture(scope="session")
def feeds_of_all() -> Callable[..., list[Feed]]:
    """Return a maker of one feed for each implementation."""

    def make(**keys: object) -> list[Feed]:
        feeds = []
        for name in TREES:
            with choice_of(name):
                feeds.append(Feed(proposer(**keys)))
        return feeds

    return make


@pytest.fixture(scope="module")
def make_feed(trees: str) -> Callable[..., Feed]:
    """Return a maker of feeds, taking configuration keys."""
    return lambda **keys: Feed(proposer(**keys))


@pytest.fixture(scope="module")
def make_proposer(trees: str) -> Callable[..., SuffixProposer]:
    return proposer


@pytest.fixture(scope="session")
def make_target_info() -> Callable[..., TargetInfo]:
    return target_info


@pytest.fixture(scope="session")
def feed_of() -> type[Feed]:
    return Feed


@pytest.fixture(scope="session")
def delivery() -> type[Delivery]:
    return Delivery
