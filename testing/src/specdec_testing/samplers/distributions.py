"""The output of a lossless sampler follows the target's distribution.

Texts of three ids from a vocabulary of four are generated step by step as the engine does, and their counts are compared with
exact enumeration: 64 cells, a few of them impossible. A deviation of total variation 0.05 is detected with a probability
above 0.9999, at a false alarm rate of 1e-6.
"""

from __future__ import annotations

import torch

from specdec_testing.samplers.suite import SAMPLED, SamplerSuite
from specdec_testing.support.chi_square import FALSE_ALARMS, fit
from specdec_testing.support.verdicts import broken, not_applicable
from specdec_testing.support.world import LENGTH, VOCAB_SIZE, World
from specdec_testing.support.world_drafts import KINDS, no_draft

NUM_TEXTS = 20_000


class DistributionTests(SamplerSuite):
    """One test for each kind of draft, then tests that noise is not shared."""

    def test_without_a_draft_tokens_follow_the_target(self) -> None:
        """Without a draft a token is drawn from p.

        To fix: draw from softmax(logits) of the row of the last committed token.
        """
        self._check_kind("no draft")

    def test_chains_without_q_leave_the_law_alone(self) -> None:
        """Drafts without q are accepted with probability p; after a rejection the correction follows p without that token.

        To fix: for rows without q accept with p(x), and remove x from p before the correction is drawn.
        """
        self._check_kind("chains without q")

    def test_trees_without_q_leave_the_law_alone(self) -> None:
        """Siblings without q are tried one after another, each against the residual of p after the earlier ones.

        To fix: after each rejection remove the sibling from p and renormalise.
        """
        self._check_kind("trees without q")

    def test_drawn_chains_leave_the_law_alone(self) -> None:
        """Chains drawn from q are accepted with min(1, p / q), or by a rule with the same output distribution.

        To fix: on rejection draw from max(p - q, 0), normalised; after the last accepted node draw from p itself.
        """
        self._check_kind("drawn chains")

    def test_independent_siblings_leave_the_law_alone(self) -> None:
        """Siblings drawn independently are each tried against the residual of the earlier ones, even if they are equal.

        To fix: after a rejection p becomes max(p - q, 0), normalised; q is unchanged for the next sibling.
        """
        self._check_kind("siblings drawn independently")

    def test_siblings_without_replacement_leave_the_law_alone(self) -> None:
        """Siblings drawn without replacement are tried against q without the earlier ones, as they were drawn.

        To fix: in addition to the residual of p, remove each rejected sibling from q and renormalise.
        """
        self._check_kind("siblings drawn without replacement")

    def test_a_reduced_vocabulary_leaves_the_law_alone(self) -> None:
        """With a `vocab_map`, q is over those ids alone and 0 elsewhere.

        To fix: scatter q to the target's ids with `vocab_map` before comparing p and q.
        """
        self._check_kind("chains from a reduced vocabulary")

    def test_rows_with_and_without_q_leave_the_law_alone(self) -> None:
        """Rows whose `has_probs` is False are point masses, whatever `node_probs` holds for them.

        To fix: check `has_probs` row by row.
        """
        self._check_kind("rows with and without q")

    def test_steps_share_no_draw(self) -> None:
        """If every position has the same distribution, tokens of successive steps are independent.

        To fix: key noise by the seed and the tokens committed at the start of the step (`num_tokens`), or the position.
        """
        self._require_lossless()
        world = World(torch.tensor([0.0, 0.5, -0.5, 1.0]))
        self._check(world, "no draft", "successive steps")
        self._check(world, "chains without q", "successive steps")

    def test_samples_share_no_draw(self) -> None:
        """The samples of one request, which share one seed, are independent.

        To fix: key noise by the seed and `sample_indices`.
        """
        self._require_lossless()
        world = World(torch.tensor([0.0, 0.5, -0.5, 1.0]))
        texts = torch.zeros(2 * NUM_TEXTS, dtype=torch.int64)
        seeds = [31 * (i // 2) + 5 for i in range(2 * NUM_TEXTS)]
        trial = world.trial(
            no_draft, texts, seeds, [SAMPLED] * len(seeds), [i % 2 for i in range(len(seeds))]
        )
        first = torch.tensor([int(tokens[0]) for tokens in self._verify(trial).token_ids])
        probs = torch.softmax(world.logits[0].double(), -1)
        counts = torch.bincount(VOCAB_SIZE * first[::2] + first[1::2], minlength=VOCAB_SIZE**2)
        result = fit(counts, NUM_TEXTS * (probs[:, None] * probs).flatten())
        if result.p_value < FALSE_ALARMS:
            broken(
                f"the first tokens of two samples of a request are not independent (p = {result.p_value:.1e})"
            )

    def _check_kind(self, name: str) -> None:
        self._require_lossless()
        if missing := KINDS[name].needs - self._class.capabilities:
            not_applicable(
                f"{', '.join(c.name for c in missing)} is not declared: the sampler is given no such drafts"
            )
        self._check(World(seed=1), name, name)

    def _check(self, world: World, kind: str, what: str) -> None:
        counts = self._counted(world, kind)
        probs = world.text_probs()
        result = fit(counts, NUM_TEXTS * probs)
        if result.impossible:
            broken(f"{what}: texts were emitted that contain a forbidden id")
        if result.p_value < FALSE_ALARMS:
            distance = float((counts / NUM_TEXTS - probs).abs().sum() / 2)
            broken(
                f"{what}: texts do not follow the target's distribution "
                f"(total variation about {distance:.3f}, p = {result.p_value:.1e})"
            )

    def _counted(self, world: World, kind: str) -> torch.Tensor:
        """Emit texts step by step and return how often each occurred."""
        texts, lengths = [0] * NUM_TEXTS, [0] * NUM_TEXTS
        going = list(range(NUM_TEXTS))
        while going:
            seeds = [7919 * at + 3 for at in going]
            now = torch.tensor([texts[at] for at in going])
            verdict = self._verify(world.trial(KINDS[kind].make, now, seeds, [SAMPLED] * len(going)))
            for at, emitted in zip(going, verdict.token_ids, strict=True):
                for token in emitted[: LENGTH - lengths[at]]:
                    texts[at] = VOCAB_SIZE * texts[at] + 1 + int(token)
                    lengths[at] += 1
            going = [at for at in going if lengths[at] < LENGTH]
        first = sum(VOCAB_SIZE**depth for depth in range(LENGTH))
        return torch.bincount(torch.tensor(texts) - first, minlength=VOCAB_SIZE**LENGTH).double()
