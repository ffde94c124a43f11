"""Which drafts the policies choose, and what becomes of q."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from composite_check import batch_of, composite_of, members_of, scripted

from specdec import ConfigError
from specdec.interfaces import Capability, Draft
from specdec_plugin_composite import Offer, Policy, Round, Unseen
from specdec_plugin_composite.offer import offers_of
from specdec_plugin_composite.policies.merge import _merged
from specdec_plugin_composite.policy import policy_class
from specdec_testing.support.checked_draft import checked_draft

BATCH = batch_of([1, 2, 3], 0)
SURE, UNSURE = [0.9, 0.9, 0.9], [0.9, 0.9]


def test_cascade_takes_a_confident_cheap_draft_and_asks_no_model() -> None:
    composite = composite_of(
        "cascade", scripted(7, 8, 9, confidence=SURE), scripted(5, needs=[Capability.OWN_KV])
    )
    assert composite.propose(BATCH).rows == ((7, 8, 9),)
    assert members_of(composite)[1].asked == []


def test_cascade_takes_an_unsure_cheap_draft_only_where_no_other_comes() -> None:
    unsure = scripted(7, 8, confidence=UNSURE)
    composite = composite_of("cascade", unsure, scripted(5, 6))
    assert composite.propose(BATCH).rows == ((5, 6),)
    assert members_of(composite)[1].asked == [8]
    assert composite_of("cascade", unsure, scripted()).propose(BATCH).rows == ((7, 8),)


def test_drafts_without_confidence_promise_all_their_tokens() -> None:
    assert composite_of("cascade", scripted(7, 8), scripted(5, 6)).propose(BATCH).rows == ((7, 8),)
    assert composite_of("cascade", scripted(7), scripted(5, 6)).propose(BATCH).rows == ((5, 6),)
    assert composite_of("cascade", scripted(7), scripted(5, 6), min_promise=1.0).propose(BATCH).rows == (
        (7,),
    )


def test_a_draft_says_who_made_it() -> None:
    cheap, dear = scripted(7, 8, name="cheap", confidence=UNSURE), scripted(5, 6, name="dear")
    assert composite_of("cascade", cheap, dear).propose(BATCH).proposers == ("dear",)
    assert composite_of("cascade", cheap, scripted()).propose(BATCH).proposers == ("cheap",)
    assert composite_of("cascade", scripted(), scripted()).propose(BATCH).proposers == ("",)
    inner = replace(checked_draft(Draft.from_lists([[7]]), 16), proposers=("inner",))
    (offer,) = offers_of(inner, "outer", 0)
    assert offer is not None
    assert offer.proposer == "inner"


def test_a_promise_of_a_tree_is_the_sum_over_its_paths() -> None:
    assert Offer((7, 8, 9), (-1, -1, 0), "", (0.5, 0.25, 0.5)).promise == pytest.approx(0.5 + 0.25 + 0.25)


def test_longest_takes_the_longest_path() -> None:
    bushy = scripted(7, 8, 9, 4, parents=[-1, -1, -1, 0])
    assert composite_of("longest", bushy, scripted(5, 6, 7)).propose(BATCH).rows == ((5, 6, 7),)
    assert composite_of("longest", bushy, scripted(5, 6)).propose(BATCH).rows == ((7, 8, 9, 4),)


def test_extend_goes_on_behind_the_first_chain_and_forgets() -> None:
    composite = composite_of("extend", scripted(7, 8), scripted(5, 6, name="then"))
    first, then = members_of(composite)
    draft = composite.propose(BATCH)
    assert draft.rows == ((7, 8, 5, 6),)
    assert draft.proposers == ("scripted+then",)
    assert first.heard == [1, 2, 3]
    assert then.heard == [1, 2, 3, 7, 8]
    composite.propose(batch_of([1, 2, 3, 7, 4], 3, last=(4, 1), most=3))
    assert then.heard == [1, 2, 3, 7, 4, 7, 8]
    assert (first.asked, then.asked) == ([8, 3], [6, 1])


def test_extend_refuses_members_that_cannot_draft_ahead() -> None:
    with pytest.raises(
        ConfigError, match="'head' needs HIDDEN_STATES, which drafted tokens do not have: put it first"
    ):
        composite_of("extend", scripted(7), scripted(5, name="head", needs=[Capability.HIDDEN_STATES]))
    with pytest.raises(ConfigError, match="joins chains, and 'tree' drafts trees"):
        composite_of("extend", scripted(7, name="tree", parents=[-1]), scripted(5))


def test_merge_makes_one_tree_of_the_likeliest_nodes() -> None:
    chain = Offer((7, 8, 9), (-1, 0, 1), "a", (0.9, 0.5, 0.5))
    tree = Offer((7, 5, 4), (-1, -1, 0), "b", (0.5, 0.4, 0.9))
    # 7: 0.9, 7 8: 0.45, 7 4: 0.45, 5: 0.4, 7 8 9: 0.225
    assert _merged([chain, tree], 9) == Offer((7, 8, 4, 5, 9), (-1, 0, 0, -1, 1), "a+b")
    assert _merged([chain, tree], 2) == Offer((7, 8), (-1, 0), "a+b")
    assert _merged([chain], 9) is chain
    assert _merged([], 9) is None
    made = composite_of("merge", scripted(7, 8), scripted(5))
    assert Capability.TREE in made.capabilities
    assert made.propose(batch_of([1, 2, 3], 0, most=2)).token_ids.tolist() == [[7, 5]]


@pytest.mark.parametrize("order", [1, -1])
def test_merge_rates_a_node_as_the_member_that_rates_it_highest(order: int) -> None:
    sure = Offer((7, 8), (-1, 0), "a", (0.9, 0.5))
    unsure = Offer((7, 5), (-1, -1), "b", (0.3, 0.6))
    merged = _merged([sure, unsure][::order], 9)
    assert merged is not None
    assert (merged.token_ids, merged.parents) == ((7, 5, 8), (-1, -1, 0))
    agreeing = [Offer((7,), (-1,), "a", (0.4,)), Offer((7, 5), (-1, -1), "b", (0.4, 0.6))]
    merged = _merged(agreeing[::order], 9)
    assert merged is not None
    assert merged.token_ids == (5, 7)


def test_policies_are_found_by_name_or_path_and_others_are_refused() -> None:
    assert policy_class("merge").name == "merge"
    assert policy_class("specdec_plugin_composite.policies.Longest").name == "longest"
    with pytest.raises(ConfigError, match="'policy' 'chose' is not installed: did you mean 'choose'"):
        policy_class("chose")
    with pytest.raises(ConfigError, match=r"is not a subclass of specdec_plugin_composite\.Policy"):
        policy_class("specdec_plugin_composite.Offer")


class TakesUnseen(Policy):
    """Looks at the first member, and takes the second's draft unseen."""

    name = "takes_unseen"

    def draft(self, turn: Round) -> list[Offer | Unseen | None]:
        """Return the second member's draft for each row."""
        turn.offers(0)
        return [Unseen(1, most) for most in turn.max_nodes]


class TakesTwice(TakesUnseen):
    """Takes a draft as unseen that it has looked at."""

    def draft(self, turn: Round) -> list[Offer | Unseen | None]:
        """Return the first member's draft."""
        turn.offers(0)
        return [Unseen(0, most) for most in turn.max_nodes]


def with_policy(policy: type[Policy], *members: type) -> Draft:
    composite = composite_of("longest", *members)
    composite._policy = policy(composite._members, 2.0)
    return composite.propose(BATCH)


def test_q_is_kept_where_nothing_drawn_was_looked_at() -> None:
    draft = with_policy(TakesUnseen, scripted(7), scripted(5, 6, has_q=True))
    assert draft.node_probs is not None
    assert draft.has_probs is not None
    assert (draft.rows, draft.node_probs.shape, draft.has_probs.tolist()) == (((5, 6),), (1, 3, 16), [True])


def test_q_is_dropped_where_a_drawn_draft_was_looked_at_whichever_is_taken() -> None:
    draft = with_policy(TakesUnseen, scripted(7, has_q=True), scripted(5, 6, has_q=True))
    assert draft.rows == ((5, 6),)
    assert draft.node_probs is None
    for policy in ("longest", "merge", "extend"):
        made = composite_of(policy, scripted(7, 8, has_q=True), scripted(5, has_q=True)).propose(BATCH)
        assert made.node_probs is None


def test_cascade_keeps_q_of_its_last_member_alone() -> None:
    unsure, drawn = scripted(7, confidence=[0.5]), scripted(5, 6, has_q=True)
    assert composite_of("cascade", unsure, drawn).propose(BATCH).node_probs is not None
    assert composite_of("cascade", drawn, scripted(8)).propose(BATCH).node_probs is None


def test_a_draft_that_was_looked_at_cannot_be_taken_as_unseen() -> None:
    with pytest.raises(
        RuntimeError, match="chose the draft of member 0 as unseen, and asked that member before"
    ):
        with_policy(TakesTwice, scripted(7), scripted(5))


def test_drawn_ids_outside_the_vocabulary_stay_with_their_q() -> None:
    """Their presence depends on the draw, so they are passed on and rejected by core."""
    draft = with_policy(TakesUnseen, scripted(7), scripted(5, 99, 6, has_q=True))
    assert draft.token_ids.tolist() == [[5, 99, 6]]
    assert torch.allclose(draft.node_probs, torch.full((1, 4, 16), 1 / 16))  # type: ignore[arg-type]
