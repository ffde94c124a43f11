"""How often the test of distributions is wrong, both ways, on simulated samples."""

import numpy as np
import pytest
from scipy.stats import chi2

from specdec_cli.audit.answer import Answer, TokenLogprobs
from specdec_cli.audit.chi_square import NOTHING, Homogeneity, detectable_variation, homogeneity
from specdec_cli.audit.divergence import Divergence, Kind, gap_noise
from specdec_cli.audit.sampled import Position, SampledResult

NUM_SAMPLES, NUM_PROMPTS, NUM_TRIALS = 128, 4, 400


def total(left: np.ndarray, right: np.ndarray, rng: np.random.Generator) -> Homogeneity:
    """Return the statistic of samples of several prompts; distributions are `[P, V]`."""
    draws = [[rng.choice(len(law), NUM_SAMPLES, p=law).tolist() for law in laws] for laws in (left, right)]
    return sum((homogeneity(a, b) for a, b in zip(*draws, strict=True)), NOTHING)


def laws(rng: np.random.Generator) -> np.ndarray:
    return rng.dirichlet(np.full(30, 0.3), NUM_PROMPTS)


def test_values_by_hand() -> None:
    found = homogeneity(["a"] * 30 + ["b"] * 10, ["a"] * 20 + ["b"] * 20)
    assert found.statistic == pytest.approx(100 / 50 + 100 / 30)
    assert (found.num_freedom, found.variation) == (1, 0.25)
    assert found.p_value == pytest.approx(chi2.sf(16 / 3, 1))


def test_rare_tokens_are_one_cell() -> None:
    left, right = [*"aaaaaaaaaaaa", *"bcde"], [*"aaaaaaaaaaaa", *"fghi"]
    assert homogeneity(left, right, least=8) == Homogeneity(0.0, 1, 0.0)
    assert homogeneity(left, right, least=9) == Homogeneity(0.0, 0, 0.0)
    assert homogeneity([*"abc"], [*"def"]) == Homogeneity(0.0, 0, 0.0)
    assert Homogeneity(0.0, 0, 0.0).p_value == 1.0
    with pytest.raises(ValueError, match="as many of each"):
        homogeneity("ab", "a")


def test_equal_distributions_are_called_different_as_rarely_as_said() -> None:
    rng = np.random.default_rng(1)
    found = [total(law := laws(rng), law, rng).p_value for _ in range(NUM_TRIALS)]
    for level in (0.05, 0.01):  # 0.05: 20 of 400 are expected, 33 are three standard deviations more
        expected = level * NUM_TRIALS
        assert sum(p < level for p in found) <= expected + 3 * expected**0.5


def test_a_detectable_variation_is_detected() -> None:
    """Distributions as far apart as is said to be found in 95 of 100 trials, in the way that is hardest to find."""
    rng, level, found, said = np.random.default_rng(2), 1e-3, [], []
    for _ in range(100):
        law = np.full((NUM_PROMPTS, 8), 1 / 8)
        variation = detectable_variation(7 * NUM_PROMPTS, NUM_SAMPLES * NUM_PROMPTS, level)
        shift = np.where(np.arange(8) % 2, 1, -1) * variation / 4
        found.append(total(law, law + shift, rng).p_value < level)
        said.append(variation)
    assert 0.1 < said[0] < 0.25
    assert sum(found) >= 90  # 95 are expected; 90 are more than two standard deviations fewer


def test_more_samples_find_less() -> None:
    few, many = (detectable_variation(20, count, 1e-4) for count in (500, 2000))
    assert few == pytest.approx(2 * many)
    assert detectable_variation(20, 4, 1e-4) == 1.0
    assert detectable_variation(0, 500, 1e-4) == 1.0


def test_a_gap_that_is_only_bounded_may_be_rounding() -> None:
    def kind(gap: float | None, *, is_least: bool) -> Kind:
        return Divergence(0, 0, "a", "b", gap, is_least).kind(0.1)

    assert [kind(0.05, is_least=False), kind(0.2, is_least=False)] == [Kind.NEAR_TIE, Kind.WRONG_TOKEN]
    assert [kind(0.05, is_least=True), kind(0.2, is_least=True)] == [Kind.UNKNOWN, Kind.WRONG_TOKEN]
    assert kind(None, is_least=False) is Kind.UNKNOWN


def test_the_smallest_p_value_is_corrected_for_positions() -> None:
    positions = tuple(Position(i, 1.0, 1, p, 0.0, d) for i, (p, d) in enumerate([(0.5, 0.9), (0.02, 0.3)]))
    result = SampledResult(1.0, {}, 1, 1, 0.03, positions)
    assert (result.p_value, result.is_equal, result.detectable) == (0.04, True, 0.3)


def test_few_rare_tokens_join_the_least_frequent_one() -> None:
    left, right = ["a"] * 30 + ["b"] * 20 + ["c"] * 3, ["a"] * 30 + ["b"] * 18 + ["d"] * 5
    found = homogeneity(left, right)
    assert (found.statistic, found.num_freedom, found.variation) == (0.0, 1, 0.0)


def test_noise_is_measured_before_the_first_divergence_alone() -> None:
    def answer(text: str, gaps: list[float]) -> Answer:
        places = tuple(
            TokenLogprobs(token, -0.1, {token: -0.1, "other": -0.1 - gap})
            for token, gap in zip(text, gaps, strict=True)
        )
        return Answer(text, tuple(text), places, has_ended=False)

    expected, got = answer("abcd", [1.0, 2.0, 3.0, 4.0]), answer("abXd", [1.5, 2.25, 3.0, 9.0])
    assert gap_noise(expected, got) == pytest.approx([0.5, 0.25])
    assert gap_noise(expected, answer("abcd", [1.0, 2.0, 3.5, 4.0])) == pytest.approx([0, 0, 0.5, 0])
