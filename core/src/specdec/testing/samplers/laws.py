"""What a lossless sampler emits follows the target's distribution.

Texts of three ids over four, step by step as the engine runs them, are counted against exact enumeration: 64 cells, of which
a few are impossible. A departure of total variation 0.05 is found with a probability above 0.9999, at a rate of false alarms
of 1e-6.
"""

from __future__ import annotations

import torch

from specdec.testing.samplers.suite import SAMPLED, SamplerSuite
from specdec.testing.support.chi_square import FALSE_ALARMS, fit
from specdec.testing.support.verdicts import broken, not_applicable
from specdec.testing.support.world import LENGTH, VOCAB_SIZE, World
from specdec.testing.support.world_drafts import KINDS, no_draft

NUM_TEXTS = 20_000


class LawTests(SamplerSuite):
    """One test for each kind of draft, then noise that is shared with nothing."""

    def test_without_a_draft_tokens_follow_the_target(self) -> None:
        """With no draft a token is drawn from p.

        To mend: draw from softmax(logits) of the row of the last committed token.
        """
        self._check_kind("no draft")

    def test_chains_without_q_leave_the_law_alone(self) -> None:
        """Drafts that were not drawn are point masses: a token is accepted with probability p, else p without it is drawn from.

        To mend: for rows without q accept with p(x), and take x out of p before the correction is drawn.
        """
        self._check_kind("chains without q")

    def test_trees_without_q_leave_the_law_alone(self) -> None:
        """Siblings that were not drawn are tried one after another, each against what the ones before left of p.

        To mend: after each rejection take the sibling out of p and divide by the rest.
        """
        self._check_kind("trees without q")

    def test_drawn_chains_leave_the_law_alone(self) -> None:
        """Chains drawn from q are accepted with min(1, p / q), or by a rule with the same output distribution.

        To mend: on rejection draw from max(p - q, 0), normalised; after the last accepted node draw from p itself.
        """
        self._check_kind("drawn chains")

    def test_independent_siblings_leave_the_law_alone(self) -> None:
        """Siblings drawn independently are each tried against the residual of the ones before, equal ones too.

        To mend: after a rejection p becomes max(p - q, 0), normalised; q stays what it is for the next sibling.
        """
        self._check_kind("siblings drawn independently")

    def test_siblings_without_replacement_leave_the_law_alone(self) -> None:
        """Siblings drawn without replacement are tried against q without the earlier ones, as they were drawn.

        To mend: take each rejected sibling out of q and divide by the rest, besides making the residual of p.
        """
        self._check_kind("siblings drawn without replacement")

    def test_a_reduced_vocabulary_leaves_the_law_alone(self) -> None:
        """Where `vocab_map` is given, q is over those ids alone and 0 elsewhere.

        To mend: spread q over the target's ids with `vocab_map` before p and q meet.
        """
        self._check_kind("chains from a reduced vocabulary")

    def test_rows_with_and_without_q_leave_the_law_alone(self) -> None:
        """Rows whose `has_probs` is False are point masses, whatever `node_probs` holds for them.

        To mend: look at `has_probs` row by row.
        """
        self._check_kind("rows with and without q")

    def test_steps_share_no_draw(self) -> None:
        """Where every token has the same distribution, tokens of successive steps are independent.

        To mend: key noise by the tokens committed when the step began (`num_tokens`), or by the position, besides the seed.
        """
        self._require_lossless()
        world = World(torch.tensor([0.0, 0.5, -0.5, 1.0]))
        self._check(world, "no draft", "successive steps")
        self._check(world, "chains without q", "successive steps")

    def test_samples_share_no_draw(self) -> None:
        """The samples of one request, which have one seed, are independent.

        To mend: key noise by `sample_indices` besides the seed.
        """
        self._require_lossless()
        world = World(torch.tensor([0.0, 0.5, -0.5, 1.0]))
        texts = torch.zeros(2 * NUM_TEXTS, dtype=torch.int64)
        seeds = [31 * (i // 2) + 5 for i in range(2 * NUM_TEXTS)]
        trial = world.trial(
            no_draft, texts, seeds, [SAMPLED] * len(seeds), [i % 2 for i in range(len(seeds))]
        )
        first = torch.tensor([int(tokens[0]) for tokens in self._verify(trial).token_ids])
        law = torch.softmax(world.logits[0].double(), -1)
        counts = torch.bincount(VOCAB_SIZE * first[::2] + first[1::2], minlength=VOCAB_SIZE**2)
        result = fit(counts, NUM_TEXTS * (law[:, None] * law).flatten())
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
        law = world.law()
        result = fit(counts, NUM_TEXTS * law)
        if result.impossible:
            broken(f"{what}: texts were emitted that contain a forbidden id")
        if result.p_value < FALSE_ALARMS:
            distance = float((counts / NUM_TEXTS - law).abs().sum() / 2)
            broken(
                f"{what}: texts do not follow the target's distribution "
                f"(total variation about {distance:.3f}, p = {result.p_value:.1e})"
            )

    def _counted(self, world: World, kind: str) -> torch.Tensor:
        """Emit texts step by step and return how often each came."""
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
