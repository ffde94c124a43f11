"""Vocabularies of real size: the distribution at 4096 ids by chi-square, and no id that the target does not have."""

from __future__ import annotations

import numpy as np
import pytest
from lawcheck.one_step import first_tokens
from speccheck.recorder import use_backends

from specdec.interfaces import SamplerConfig
from specdec.samplers.block import BlockSampler
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec_testing.support.chi_square import excess

pytestmark = pytest.mark.slow

SAMPLERS = {
    "probabilistic": ProbabilisticSampler(SamplerConfig()),
    "block": BlockSampler(SamplerConfig()),
}
COUNT = 40000


def choose(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    """Verify with the installed backends, or with torch alone."""
    if not is_compiled:
        use_backends(monkeypatch)


def laws(vocab: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return p, with ids that cannot come, and a q that resembles it."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal(vocab)
    p = np.exp(logits) * (rng.random(vocab) < 0.9)
    q = np.exp(logits + rng.standard_normal(vocab))
    return p / p.sum(), q / q.sum()


def check_law(name: str, parents: list[int], chunk: int = 1000) -> None:
    p, q = laws(4096)
    seen = first_tokens(SAMPLERS[name], p, q, parents, COUNT, chunk=chunk)
    assert excess(seen, p) < 1
    wrong = np.where(np.arange(4096) % 2, 1.2 * p, 0.8 * p)
    assert excess(seen, wrong / wrong.sum()) > 1


@pytest.mark.parametrize(("name", "is_compiled"), [("probabilistic", False), ("block", True)])
@pytest.mark.sampled(0, slow=1)
def test_the_law_at_4096_ids(monkeypatch, name, is_compiled) -> None:
    choose(monkeypatch, is_compiled)
    check_law(name, [-1, 0])


@pytest.mark.full
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_laws_of_chains_and_trees_at_4096_ids(monkeypatch, name, is_compiled) -> None:
    choose(monkeypatch, is_compiled)
    for parents in ([-1, 0], [-1, -1, 0]):
        check_law(name, parents)


def test_the_law_at_4096_ids_of_point_masses() -> None:
    p, _ = laws(4096)
    best = np.argsort(-p)[:3].tolist()
    assert excess(first_tokens(SAMPLERS["probabilistic"], p, None, [-1, 0, -1], COUNT, tokens=best), p) < 1


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("vocab", [8193, 50257, 151936])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.sampled(0, slow=4)
def test_no_id_outside_the_vocabulary(monkeypatch, name, vocab, is_compiled) -> None:
    """`first_tokens` checks every emitted id. q speaks of ids that the target lacks, and of fewer than it has."""
    choose(monkeypatch, is_compiled)
    rng = np.random.default_rng(vocab)
    flat = np.full(vocab, 1 / vocab)
    wider = np.concatenate((np.zeros(vocab - 1), np.full(8, 1 / 8)))
    narrow = np.exp(rng.standard_normal(vocab // 2))
    for q in (wider, narrow / narrow.sum(), flat):
        seen = first_tokens(SAMPLERS[name], flat, q, [-1, 0, 1], 24, chunk=12)
        assert seen.sum() == 24
        first_tokens(SAMPLERS[name], flat, q, [-1, -1, 0], 6, chunk=6)
    last = np.zeros(vocab)
    last[-1] = 1.0
    assert first_tokens(SAMPLERS[name], last, wider, [-1, 0], 8)[-1] == 8
