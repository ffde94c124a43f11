"""Every rejection-type verifier follows the target's distribution: enumerated over drafts, decisions and tokens, in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from lawcheck.exact import bias, outcome, worst_bias
from lawcheck.world import CHAINS, TREES, World, all_drafts, ancestors, on_trial

from specdec.interfaces import DraftSampling
from specdec.samplers.block import block_scheme
from specdec.samplers.rejection import rejection_scheme
from specdec.samplers.scheme import Scheme
from specdec_kernels.cpu.verification.schemes import compiled_scheme

DETERMINISTIC, IID, WITHOUT = DraftSampling
TOLERANCE = 1e-12
VERIFIERS = {
    "probabilistic": rejection_scheme,
    "block": block_scheme,
    "probabilistic, compiled": partial(compiled_scheme, is_block=False),
    "block, compiled": partial(compiled_scheme, is_block=True),
}


def length_of(parents: list[int]) -> int:
    return max(len(ancestors(parents, node)) for node in range(len(parents))) + 1


def error(name: str, world: World, parents: list[int], sampling: DraftSampling, **given) -> float:
    """Return how far the output is from the target's distribution; for drafts that are not drawn, with the worst of them."""
    length = length_of(parents)
    drafts = all_drafts(world, parents, sampling)
    trial = on_trial(world, drafts, sampling, is_chain=parents in CHAINS, **given)
    law: Scheme = VERIFIERS[name](trial)
    result = outcome(law, world, drafts, length)
    if sampling is DETERMINISTIC:
        return worst_bias(result, world, length)
    assert abs(drafts.chances.sum() - 1) < 1e-12
    return bias(result, world, drafts, length)


def random_error(name: str, seed: int, vocab: int, parents: list[int], sampling, zeros: float = 0.0) -> float:
    return error(name, World.random(seed, vocab, length_of(parents), zeros=zeros), parents, sampling)


@pytest.mark.parametrize("sampling", DraftSampling)
@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("vocab", [2, 3, 4])
@pytest.mark.sampled(12, slow=12)
def test_chains_are_exact(name, vocab, sampling) -> None:
    for parents in CHAINS:
        for seed in range(4):
            assert random_error(name, seed, vocab, parents, sampling, 0.35 * (seed % 2)) < TOLERANCE


@pytest.mark.parametrize("parents", TREES, ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_trees_are_exact(name, parents) -> None:
    for vocab in (3, 4) if 4 ** len(parents) <= 256 else (3,):
        for sampling, zeros in ((DETERMINISTIC, 0.3), (IID, 0.0), (IID, 0.3), (WITHOUT, 0.0)):
            assert random_error(name, vocab, vocab, parents, sampling, zeros) < TOLERANCE


@pytest.mark.full
@pytest.mark.parametrize("parents", TREES, ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_more_trees_are_exact(name, parents) -> None:
    for seed in range(12):
        for sampling, zeros in ((DETERMINISTIC, 0.3 * (seed % 3)), (IID, 0.3 * (seed % 3)), (WITHOUT, 0.0)):
            assert random_error(name, 100 + seed, 3 + seed % 2, parents, sampling, zeros) < TOLERANCE
    if parents.count(-1) < 3 and parents.count(0) < 3:
        assert random_error(name, 5, 2, parents, DETERMINISTIC) < TOLERANCE
        assert random_error(name, 5, 2, parents, IID) < TOLERANCE


@pytest.mark.parametrize("name", VERIFIERS)
def test_single_precision_is_enough(name) -> None:
    for parents in ([-1, 0, 1], [-1, -1, 0, 1]):
        for sampling in DraftSampling:
            world = World.random(17, 3, 4)
            assert error(name, world, parents, sampling, dtype=torch.float32) < 1e-6


@pytest.mark.parametrize("sampling", [IID, WITHOUT])
def test_block_verification_of_a_chain_is_that_of_a_tree_without_branches(sampling) -> None:
    for seed in range(6):
        world = World.random(seed, 3, 4, zeros=0.3 * (seed % 2))
        drafts = all_drafts(world, [-1, 0, 1], sampling)
        chain, tree = (
            block_scheme(on_trial(world, drafts, sampling, is_chain=is_chain)) for is_chain in (True, False)
        )
        assert (chain.thresholds - tree.thresholds).abs().max() < TOLERANCE


@pytest.mark.parametrize("parents", [[-1, 0, 1], [-1, -1, 0, 1], [-1, 0, 0, -1]], ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_rows_with_and_without_q_keep_to_themselves(name, parents) -> None:
    """Every draft is in the batch twice, drawn and not; each half is exact by its own rule."""
    length, sampling = length_of(parents), IID
    world = World.random(8, 3, length)
    drawn = all_drafts(world, parents, sampling)
    count = len(drawn.tokens)
    both = type(drawn)(drawn.tokens.repeat(2, 0), parents, drawn.chances.repeat(2))
    trial = on_trial(world, both, sampling, is_chain=parents in CHAINS, has_probs=[True, False] * count)
    result = outcome(VERIFIERS[name](trial), world, both, length)
    halves = [type(result)(result.output[half::2], result.num_accepted[half::2]) for half in (0, 1)]
    assert bias(halves[0], world, drawn, length) < TOLERANCE
    assert worst_bias(halves[0], world, length) > 0.01  # a single drawn draft does not give p
    assert worst_bias(halves[1], world, length) < TOLERANCE


@pytest.mark.parametrize("sampling", [IID, WITHOUT])
@pytest.mark.parametrize("parents", [[-1, 0, 1], [-1, -1, 0, 1], [-1, -1, -1]], ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_reduced_and_foreign_vocabularies_are_exact(name, parents, sampling) -> None:
    length = length_of(parents)
    world = World.random(21, 4, length)
    reduced = world.without(q=(1,))
    assert error(name, reduced, parents, sampling if parents != [-1, -1, -1] else IID) < TOLERANCE
    assert error(name, reduced, parents, IID, vocab_map=[2, 0, 3]) < TOLERANCE
    assert error(name, world, parents, sampling, vocab_map=[3, 1, 0, 2]) < TOLERANCE
    narrow = world.without(q=(3,))  # q over the first three ids only
    assert error(name, narrow, parents, IID, vocab_map=[0, 1, 2]) < TOLERANCE
    # Ids that the target does not have are drawn all the same, and rejected.
    foreign = world.without(p=(3,))
    assert error(name, foreign, parents, sampling, vocab_size=3) < TOLERANCE
    assert error(name, foreign, parents, sampling, vocab_size=3, vocab_map=[3, 1, 0, 2]) < TOLERANCE


@pytest.mark.parametrize("vocab_map", [None, [4, 1, 6, 3, 5, 2, 0]])
@pytest.mark.parametrize("name", VERIFIERS)
def test_several_siblings_outside_the_vocabulary(name, vocab_map) -> None:
    """Each leaves q by itself, though the verifier sees their mass as one."""
    for seed in range(6):
        world = World.random(seed, 7, 2).without(p=(5, 6))
        drafts = all_drafts(world, [-1, -1, -1], WITHOUT)
        given = {"vocab_size": 5, "vocab_map": vocab_map}
        law = VERIFIERS[name](on_trial(world, drafts, WITHOUT, is_chain=False, **given))
        assert bias(outcome(law, world, drafts, 2), world, drafts, 2) < TOLERANCE


@pytest.mark.parametrize("parents", [[-1, 0, 1], [-1, -1, 0], [-1, 0, 0]], ids=str)
@pytest.mark.parametrize("name", VERIFIERS)
def test_one_sided_laws_are_exact(name, parents) -> None:
    length = length_of(parents)
    world = World.random(3, 3, length)
    single = world.without(p=(0, 2))  # p has one id
    certain = world.without(q=(0, 1))  # q has one id
    apart = world.without(p=(0,), q=(1, 2))  # nothing in common
    for case in (single, certain, apart, World(world.p, world.p)):
        assert error(name, case, parents, DETERMINISTIC) < TOLERANCE
        assert error(name, case, parents, IID) < TOLERANCE


@pytest.mark.parametrize("name", VERIFIERS)
def test_equal_laws_accept_everything(name) -> None:
    for parents in ([-1, 0, 1], [-1, -1, 0, 0]):
        world = World.random(4, 3, 4)
        same = World(world.p, world.p)
        drafts = all_drafts(same, parents, IID)
        trial = on_trial(same, drafts, IID, is_chain=parents in CHAINS)
        result = outcome(VERIFIERS[name](trial), same, drafts, 4)
        assert abs(result.mean_accepted(drafts) - (length_of(parents) - 1)) < 1e-9
