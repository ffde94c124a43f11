"""The kit's statistics: how often they cry wolf, and what they find."""

from __future__ import annotations

import pytest
import torch
from kit_subjects.law_mutants import lie
from scipy import stats

from specdec.interfaces import DraftSampling
from specdec_testing.support.chi_square import FALSE_ALARMS, Fit, fit
from specdec_testing.support.honesty import NUM_DRAWS, Tally
from specdec_testing.support.rows import Row


@pytest.mark.parametrize(
    ("statistic", "degrees"), [(3.0, 2), (63.0, 63), (150.0, 63), (400.0, 100), (0.0, 5)]
)
def test_p_values_are_those_of_scipy(statistic: float, degrees: int) -> None:
    assert Fit(statistic, degrees, ()).p_value == pytest.approx(stats.chi2.sf(statistic, degrees), rel=1e-6)


def test_the_statistic_is_pearsons_and_rare_cells_are_put_together() -> None:
    counts, expected = torch.tensor([12.0, 30.0, 3.0, 5.0, 0.0]), torch.tensor([20.0, 20.0, 3.0, 4.0, 3.0])
    result = fit(counts, expected)
    assert result.statistic == pytest.approx(8**2 / 20 + 10**2 / 20 + 2**2 / 10)
    assert result.num_degrees == 2
    assert fit(torch.tensor([5.0, 1.0]), torch.tensor([6.0, 0.0])).p_value == 0.0


def law_of_many_cells(seed: int, size: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(size, generator=generator, dtype=torch.float64), -1)


def p_values(true: torch.Tensor, said: torch.Tensor, repeats: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(repeats):
        tokens = torch.multinomial(true, NUM_DRAWS, replacement=True, generator=generator)
        counts = torch.bincount(tokens, minlength=len(said))
        found.append(fit(counts, NUM_DRAWS * said).p_value)
    return torch.tensor(found)


def test_a_lie_of_one_twentieth_is_always_found_and_the_truth_never() -> None:
    for seed in range(3):
        said = law_of_many_cells(seed)
        liar = lie(said)
        assert float((liar - said).abs().sum() / 2) == pytest.approx(0.05)
        assert float(p_values(liar, said, 60).max()) < FALSE_ALARMS
        truths = p_values(said, said, 200)
        assert float(truths.min()) > 1e-4
        assert 0.3 < float((truths < 0.5).float().mean()) < 0.7


def test_the_worst_lie_of_one_twentieth_is_found() -> None:
    """Spread over all cells in proportion to q it moves the statistic least."""
    said = torch.full((64,), 1 / 64, dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(32)
    assert float(p_values(said * (1 + 0.1 * signs), said, 100).max()) < FALSE_ALARMS


def rows_from(law: torch.Tensor, said: torch.Tensor, count: int, seed: int) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.multinomial(law, count, replacement=True, generator=generator).tolist()
    probs = said.repeat(2, 1)
    return [Row((token,), (-1,), False, DraftSampling.IID, probs, None, None) for token in tokens]


@pytest.mark.parametrize("size", [3, 64, 500])
def test_a_tally_finds_a_lie_in_vocabularies_of_any_size(size: int) -> None:
    said = law_of_many_cells(4, size)
    for law, is_found in ((said, False), (lie(said), True)):
        tally = Tally(size)
        for batch in range(20):
            tally.add(rows_from(law, said, NUM_DRAWS // 20, batch))
        assert tally.num_draws == NUM_DRAWS
        assert (tally.complaint() is not None) == is_found


def test_a_token_that_q_excludes_needs_no_statistics() -> None:
    said = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    tally = Tally(3)
    tally.add(rows_from(torch.tensor([0.0, 0.0, 1.0]), said, 1, 0))
    assert "a token was drawn to which its q gives nothing" in (tally.complaint() or "")
