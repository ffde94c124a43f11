"""The distribution of what each policy leads to under every sampler, in the whole engine, against exact enumeration.

A model of few ids; all texts of three tokens are enumerated. Seeds are fixed, and the threshold of the statistic is that of
`specdec_testing`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
from speccheck.engines import engine_of, make_llm, scripted, tokens_of
from speccheck.models import few_ids
from speccheck.naive import Constraints, TextProbs, text_probs
from speccheck.texts import excess_of_texts

from specdec import SamplingParams
from specdec.adaptive import ByCount
from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)
from specdec_plugin_composite import Choice, CompositeProposer, Policy, Round
from specdec_plugin_composite.assemble import drawn_rows

VOCAB, LENGTH, MAX_TOKENS, SAMPLES = 5, 3, 4, 2000
PROMPT = [1, 4, 0, 2]


class Drawing(Proposer):
    """Draws chains from a distribution that depends on the last token; without q if the configuration says `greedy`."""

    name: ClassVar[str] = "drawing"
    seed: ClassVar[int] = 8
    ids: ClassVar[tuple[int, ...]] = tuple(range(VOCAB))
    capabilities = frozenset({Capability.DRAFT_PROBS, Capability.OWN_KV})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        if config.draft_sample_method != "probabilistic":
            self.capabilities = frozenset({Capability.OWN_KV})
        generator = torch.Generator().manual_seed(self.seed)
        self.logits = 1.5 * torch.randn(VOCAB, len(self.ids), generator=generator)
        self.map = torch.tensor(self.ids)

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draw a chain for each row."""
        width = max(batch.max_nodes)
        tokens = torch.full((batch.batch_size, width), -1)
        q = torch.full((batch.batch_size, width + 1, len(self.ids)), 1 / len(self.ids))
        for node in range(width):
            rows = [row for row in range(batch.batch_size) if node < batch.max_nodes[row]]
            last = [int(tokens[row, node - 1] if node else batch.token_ids(row)[-1]) for row in rows]
            drawn, q[rows, node] = batch.draws.sample(self.logits[last], rows, node)
            tokens[rows, node] = self.map[drawn]
        if Capability.DRAFT_PROBS not in self.capabilities:
            return Draft(tokens)
        is_all = len(self.ids) == VOCAB
        return Draft(tokens, None, DraftSampling.IID, q, vocab_map=None if is_all else self.map)


class DrawingOthers(Drawing):
    """Draws from another distribution, over four ids in another order."""

    name: ClassVar[str] = "drawing_others"
    seed: ClassVar[int] = 9
    ids: ClassVar[tuple[int, ...]] = (3, 0, 4, 1)


class HigherFirstId(Policy):
    """Looks at the drafts of two members that draw, and takes the one with the higher first id."""

    name: ClassVar[str] = "higher_first_id"

    @classmethod
    def is_unseen(cls, member: int, num_members: int) -> bool:
        """Return True, so that its members draw with q."""
        return True

    def draft(self, turn: Round) -> list[Choice]:
        """Return the draft with the higher first id."""
        pairs = zip(turn.offers(0), turn.offers(1), strict=True)
        return [max(filter(None, pair), key=lambda offer: offer.token_ids[0], default=None) for pair in pairs]


class LooksAtQ(CompositeProposer):
    """Keeps the q of every draft, seen or not: the mutant."""

    name: ClassVar[str] = "looks_at_q"

    def _with_q(self, turn: Round, choices: Any, drafts: Any) -> Any:
        chosen = {row: getattr(choice, "member", -1) for row, choice in enumerate(choices)}
        return {row: drafts[n] for row, n in chosen.items() if n >= 0 and row in drawn_rows(drafts[n])}


def drawing(name: str, k: int) -> dict[str, Any]:
    return {"method": f"{__file__}:{name}", "num_speculative_tokens": k}


COPIES = scripted(k=4, wrong=0.2)
MEMBERS = [COPIES, drawing("Drawing", 3), drawing("DrawingOthers", 2)]
POLICIES = ("cascade", "choose", "extend", "longest", "merge")
PAIRS = (
    ("cascade", "probabilistic"),
    ("choose", "block"),
    ("extend", "strict"),
    ("longest", "block"),
    ("merge", "probabilistic"),
)
"""Every policy and every sampler once at least; the other pairs are slow tests."""


@pytest.fixture(scope="module")
def model() -> Any:
    return few_ids(VOCAB, flatness=0.25)


@pytest.fixture(scope="module")
def law(model: Any) -> TextProbs:
    short = params(1)[0].model_copy(update={"max_tokens": LENGTH})
    return text_probs(model, PROMPT, short, Constraints(), lambda text: False)


def params(count: int = SAMPLES) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=0.9, top_k=4, max_tokens=MAX_TOKENS, seed=1_000_003 * i, ignore_eos=True)
        for i in range(count)
    ]


def excess(
    model: Any, law: TextProbs, sampler: str, method: str = "composite", **keys: Any
) -> tuple[float, Any]:
    best = sorted(law, key=law.__getitem__, reverse=True)[:2]
    texts = {"texts": [[*PROMPT, *text] for text in best]}
    members = [member | texts if member is COPIES else member for member in keys.pop("proposers", MEMBERS)]
    config = {
        "method": method,
        "proposers": members,
        "rejection_sample_method": sampler,
        "on_proposer_error": "raise",
    }
    llm = make_llm(model, config | keys, max_model_len=16, max_num_seqs=64)
    texts = tokens_of(llm, [PROMPT] * SAMPLES, params())
    return excess_of_texts(Counter(tuple(text[:LENGTH]) for text in texts), law), engine_of(llm).metrics


@pytest.fixture(autouse=True)
def drafts_that_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `choose` draft, though drafts do not pay for a model that is as small as this one."""
    for name in ("at", "along"):
        monkeypatch.setattr(
            ByCount, name, lambda measured, count: 1e-4 * count + (0.01 if measured._from_zero else 1.0)
        )
    monkeypatch.setattr("specdec_plugin_composite.choose.choose._PLAIN_STEPS", 0)


@pytest.mark.parametrize(
    ("policy", "sampler"),
    [
        pytest.param(policy, sampler, marks=() if (policy, sampler) in PAIRS else pytest.mark.slow)
        for policy in POLICIES
        for sampler in ("strict", "probabilistic", "block")
    ],
)
@pytest.mark.sampled(2, slow=3)
def test_texts_follow_the_exact_law(model: Any, law: TextProbs, policy: str, sampler: str) -> None:
    if policy == "merge" and sampler == "block":
        pytest.skip("block verifies chains, and merge makes trees")
    members = MEMBERS[1:] if policy == "extend" else MEMBERS  # the first one drafts trees
    found, metrics = excess(model, law, sampler, policy=policy, proposers=members)
    assert found < 1
    assert metrics.num_accepted_tokens > SAMPLES / 4


@pytest.mark.parametrize("sampler", [pytest.param("probabilistic", marks=pytest.mark.slow), "block"])
def test_drafts_of_models_alone_are_verified_with_their_q(model: Any, law: TextProbs, sampler: str) -> None:
    """`choose` between two that draw, neither of which it looks at."""
    found, metrics = excess(model, law, sampler, proposers=MEMBERS[1:])
    assert found < 1
    assert metrics.num_accepted_tokens > SAMPLES / 4


@pytest.mark.parametrize("sampler", ["probabilistic", pytest.param("block", marks=pytest.mark.slow)])
def test_q_that_is_kept_after_looking_gives_another_law(model: Any, law: TextProbs, sampler: str) -> None:
    """The mutant of the test above: two that draw, the rarer one's draft taken with its q."""
    found, _ = excess(
        model, law, sampler, f"{__file__}:LooksAtQ", proposers=MEMBERS[1:], policy=f"{__file__}:HigherFirstId"
    )
    assert found > 1
    right, _ = excess(model, law, sampler, proposers=MEMBERS[1:], policy=f"{__file__}:HigherFirstId")
    assert right < 1
