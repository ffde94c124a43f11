"""A long random life of proposers on each implementation of the trees, held against the specification after every step."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from specdec.interfaces import FinishReason
from specdec_plugin_suffix.reference import Rules, drafts, tree_probs

DEPTH, MAX_NODES, MAX_RESPONSES, MAX_RUNNING = 6, 5, 3, 3
RULES = Rules(MAX_NODES, DEPTH, max_spec_factor=1.5, min_token_prob=0.15)


class Walk:
    """Requests that arrive, grow, take tokens back, and end in any way; `texts` and `responses` are what trees should hold."""

    def __init__(self, feeds: list[Any], delivery: Callable[..., Any], seed: int) -> None:
        self.feeds, self.delivery = feeds, delivery
        self.random = random.Random(seed)
        self.texts: dict[str, list[int]] = {}
        self.responses: list[list[int]] = []
        self.num_begun = self.num_drafts = self.num_evicted = self.num_redelivered = 0

    def step(self) -> dict[str, list[Any]]:
        """Take one step; return the draft of each feed and its confidence, for each request that took part."""
        chance = self.random.random()
        if self.texts and chance < 0.08:
            self._finish(self.random.choice(list(self.texts)))
        if len(self.texts) < MAX_RUNNING and (not self.texts or chance > 0.85):
            self.texts[f"request {self.num_begun}"] = []
            self.num_begun += 1
        deliveries = {}
        for name, text in self.texts.items():
            if text and self.random.random() < 0.2:
                continue
            start = len(text)
            if start > 2 and self.random.random() < 0.1:  # from here on it is delivered anew
                start = self.random.randrange(start)
                self.num_redelivered += 1
            new = [self.random.randrange(3) for _ in range(self.random.randint(start == 0, 4))]
            text[start:] = new
            deliveries[name] = self.delivery(start, new, MAX_NODES)
        rows = [list(feed.step(deliveries).values()) for feed in self.feeds]
        confidence = [feed.draft.confidence.tolist() for feed in self.feeds]
        return {
            name: [(tuple(tokens[row]), probs[row]) for tokens, probs in zip(rows, confidence, strict=True)]
            for row, name in enumerate(deliveries)
        }

    def _finish(self, name: str) -> None:
        reason = self.random.choice(list(FinishReason))
        text = self.texts.pop(name)
        for feed in self.feeds:
            feed.finish(name, reason)
            feed.settle()
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            self.responses.append(text)
            if len(self.responses) > MAX_RESPONSES:
                self.responses.pop(0)
                self.num_evicted += 1


def walk(feeds_of_all: Any, delivery: Any, seed: int, **keys: object) -> Walk:
    feeds = feeds_of_all(
        num_speculative_tokens=MAX_NODES,
        suffix_decoding_max_tree_depth=DEPTH,
        suffix_decoding_max_spec_factor=RULES.max_spec_factor,
        suffix_decoding_min_token_prob=RULES.min_token_prob,
        suffix_decoding_max_cached_requests=MAX_RESPONSES,
        suffix_decoding_time_budget_ms=1e6,
        **keys,
    )
    for feed in feeds:
        feed.num_prompt_tokens = 0
    return Walk(feeds, delivery, seed)


STEPS = pytest.mark.parametrize("num_steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])


@STEPS
def test_chains(feeds_of_all: Any, delivery: Any, num_steps: int) -> None:
    walked, num_unambiguous = walk(feeds_of_all, delivery, seed=num_steps), 0
    for _ in range(num_steps):
        for name, found in walked.step().items():
            allowed = drafts(walked.texts[name], walked.responses, RULES)
            for tokens, confidence in found:
                assert tokens in allowed
                probs = np.cumprod(confidence[: len(tokens)])
                assert any(probs == pytest.approx(each, abs=1e-5) for each in allowed[tokens])
            if len(allowed) == 1:
                num_unambiguous += 1
                assert len({tokens for tokens, _ in found}) == 1
            walked.num_drafts += bool(found[0][0])
    assert walked.num_drafts > num_steps
    assert num_unambiguous > num_steps / 3
    assert min(walked.num_evicted, walked.num_redelivered) > num_steps / 100


@STEPS
def test_trees(feeds_of_all: Any, delivery: Any, num_steps: int) -> None:
    walked = walk(feeds_of_all, delivery, seed=num_steps, use_tree_spec=True)
    for _ in range(num_steps):
        for row, (name, found) in enumerate(walked.step().items()):
            expected = tree_probs(walked.texts[name], walked.responses, RULES)
            for feed, (tokens, confidence) in zip(walked.feeds, found, strict=True):
                probs: list[float] = []
                for parent, share in zip(
                    feed.draft.parents[row].tolist()[: len(tokens)], confidence, strict=False
                ):
                    probs.append(share * (probs[parent] if parent >= 0 else 1.0))
                assert sum(probs) == pytest.approx(sum(expected), abs=1e-4)
            walked.num_drafts += bool(found[0][0])
    assert walked.num_drafts > num_steps
