"""The policy `choose`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import ClassVar

from specdec.adaptive import ByCount, StepCosts
from specdec_plugin_composite.choose.acceptance import Acceptance
from specdec_plugin_composite.choose.best_plan import best_plan
from specdec_plugin_composite.choose.options import Option, Plan
from specdec_plugin_composite.choose.scoring import PendingOffer, Scoring
from specdec_plugin_composite.choose.trials import Trials
from specdec_plugin_composite.choose.worth import Worth
from specdec_plugin_composite.member import Member
from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.round import Choice, Round, Unseen

_FEW_TOLD = 8
_AMORTISED = 32
"""Steps over which the time of catching up is spread, as it is needed once."""
_PLAIN_STEPS, _PLAIN_EVERY = 2, 256
"""Steps without drafts that are measured first, and drafting steps after which one is measured again."""
_KEPT_STEPS = 16
"""Steps for which a plan is kept while drafts that are made already cannot be better: its costs hardly change."""


class Choose(Policy):
    """Decides for each request and step which member drafts, and how much, by expected tokens per second.

    Members that run no model draft in every step, are scored by the text that comes, used or not, and shortened to what pays.
    Those that run a model are chosen unseen, by their acceptance so far and their measured cost, and tried now and then. So its
    drafts depend on how fast the machine is, as with `adaptive`; texts under `strict` do not.
    """

    name: ClassVar[str] = "choose"
    is_adaptive: ClassVar[bool] = True

    def __init__(self, members: Sequence[Member], min_promise: float) -> None:
        super().__init__(members, min_promise)
        count = range(len(members))
        self._cheap = [n for n in count if not members[n].runs_model and not members[n].draws]
        self._dear = [n for n in count if n not in self._cheap]
        self.costs = StepCosts()
        self.catching_up = [ByCount() for _ in members]
        """Seconds of a draft by the number of tokens that the member was told before."""
        self.acceptance = [
            Acceptance(is_unseen=number in self._dear, is_target=members[number].is_target)
            for number in count
        ]
        self._trials = {number: Trials() for number in self._dear}
        self._scoring = Scoring()
        self._seen: dict[int, list[Offer | None]] = {}
        self._last: tuple[list[int], tuple[str, ...]] | None = None
        self._unread: tuple[int, int] | None = None
        """The member whose draft the last step left unread on a device, and its depth; 0 for the first one, which warms up."""
        self._plan = Plan()
        self._plan_of: tuple[tuple[str, ...], tuple[int, ...]] | None = None
        """The requests and limits that the plan was made for."""
        self._plan_age = 0
        self._trial: int | None = None
        self._since_plain = self._num_plain = 0
        self._worth: defaultdict[int, Worth] = defaultdict(Worth)
        """By the number of binary digits of the batch size."""
        self._began = 0.0

    @classmethod
    def is_unseen(cls, member: int, num_members: int) -> bool:
        """Return True: only drafts of members that do not draw are looked at."""
        return True

    def pays(self, member: int) -> bool:
        """Return whether a member was chosen since it was last tried; at first all are to be tried."""
        return member not in self._trials or self._trials[member].has_paid

    def waits_for(self, member: int) -> bool:
        """Return False for one that was not chosen since it was last tried: it is tried again in a request that begins."""
        return self.pays(member) or self._trials[member].is_due

    def begin(self, turn: Round, other_s: float | None) -> None:
        """Measure the last step, and score the drafts that its tokens decide."""
        self._began = perf_counter()
        if self._last is not None and other_s is not None:
            nodes, names = self._last
            scored = dict(zip(turn.request_ids, turn.last_num_drafted, strict=True))
            is_as_chosen = all(scored.get(name, n) == n for name, n in zip(names, nodes, strict=True))
            # A first step without drafts finds caches that are warm for drafts.
            if self._unread is not None:
                if is_as_chosen:
                    self._observe_unread(self._unread, len(nodes), sum(nodes), other_s)
            elif is_as_chosen and (any(nodes) or self._num_plain > 1):
                self.costs.observe_step_without_draft(len(nodes), sum(nodes), other_s)
        self._unread = None
        for row, request_id in enumerate(turn.request_ids):
            text_from = partial(turn.text, row)
            for drafted, path in self._scoring.decided(request_id, turn.num_tokens[row], text_from):
                self.acceptance[drafted.member].observe(request_id, drafted.offer, path, drafted.expected)

    def draft(self, turn: Round) -> list[Choice]:
        """Return the choice for each row."""
        rows = [row for row, most in enumerate(turn.max_nodes) if most > 0]
        size = len(turn.request_ids)
        plain = self.costs.rest(size).at(0)
        self.is_paused = bool(rows and plain) and self._worth_at(size).is_paused(
            turn.request_ids, size / plain
        )
        if self.is_paused:
            self._seen, self._trial = {}, None
            return [None] * size
        self._seen = {number: turn.offers(number) for number in self._cheap} if rows else {}
        self._trial = None
        choices: list[Choice] = [None] * size
        if not rows:
            return choices
        rest = self.costs.rest(size)
        names = [turn.request_ids[row] for row in rows]
        due = next((n for n in self._dear if self._trials[n].is_due and self._can_draft(n, names)), None)
        wants_plain = rest.is_known and (
            rest.num_measured(0) < _PLAIN_STEPS or self._since_plain >= _PLAIN_EVERY
        )
        if not self._keeps_plan(turn):
            self._plan = best_plan(
                {row: self._options(turn, row) for row in rows},
                size,
                self.costs,
                {
                    number: self._catching_up_s(turn, number) / _AMORTISED
                    for number in self._dear
                    if self.members[number].can_draft
                },
            )
        if due is not None:
            self._trial = due
            return [Unseen(due, most) if most > 0 else None for most in turn.max_nodes]
        if wants_plain:
            return choices
        for row, option in self._plan.options.items():
            choices[row] = option.choice
        return choices

    def verified(self, turn: Round, offers: Sequence[Offer | None]) -> None:
        """Keep what was drafted, for the measurement and the scores of the next steps."""
        nodes = [0 if offer is None else offer.num_nodes for offer in offers]
        self._last = nodes, turn.request_ids
        self._num_plain = 0 if any(nodes) else self._num_plain + 1
        self._since_plain = self._since_plain + 1 if any(nodes) or self._num_plain == 1 else 0
        if self.is_paused:
            self._worth_at(len(nodes)).count_pause()
            return
        for row, (request_id, offer) in enumerate(zip(turn.request_ids, offers, strict=True)):
            seen = {n: drafts[row] for n, drafts in self._seen.items()}
            if offer is not None and offer.member in self._trials:
                seen[offer.member] = offer
            for number, draft in seen.items():
                if draft is not None:
                    gains = (
                        self._gains_unseen(number, "", draft.num_nodes)
                        if number in self._trials
                        else self.acceptance[number].gains("", draft)
                    )
                    self._scoring.add(
                        request_id, PendingOffer(number, draft, turn.num_tokens[row], gains[-1])
                    )
        if any(most > 0 for most in turn.max_nodes):
            self._count_trials(turn, offers)
            self._count_worth(turn, has_nodes=any(nodes))

    def finish(self, request_ids: Sequence[str]) -> None:
        """Drop the state of requests."""
        self._seen, self._last, self._plan, self._plan_of = {}, None, Plan(), None
        self._scoring.forget(request_ids)
        for acceptance in self.acceptance:
            acceptance.forget(request_ids)

    def _keeps_plan(self, turn: Round) -> bool:
        """Return whether the last plan still holds: of one request, no draft that is made can be better."""
        plan_of, made = (turn.request_ids, tuple(turn.max_nodes)), self._plan.options.get(0)
        is_same = len(turn.request_ids) == 1 and plan_of == self._plan_of and self._plan_age < _KEPT_STEPS
        self._plan_of, self._plan_age = plan_of, self._plan_age + 1
        if is_same and made is not None and made.option.offer is None:
            (name,), number = turn.request_ids, made.option.member
            offers = ((n, offer) for n, (offer,) in self._seen.items() if offer is not None)
            most = max((self.acceptance[n].gains(name, offer)[-1] for n, offer in offers), default=0.0)
            if (1 + most) / self.costs.rest(1).at(1) < self._plan.tokens / self._plan.seconds:
                return self.members[number].can_draft_for(name)
        self._plan_age = 0
        return False

    def _options(self, turn: Round, row: int) -> list[Option]:
        """Return the drafts that a row may have, each with the expected tokens of its prefixes."""
        name, most = turn.request_ids[row], turn.max_nodes[row]
        found = []
        for number, offers in self._seen.items():
            offer = offers[row]
            if offer is not None:
                found.append(Option(number, self.acceptance[number].gains(name, offer), offer))
        for number in self._dear:
            member = self.members[number]
            if member.can_draft_for(name):
                deepest = min(most, member.most_nodes)
                gains = self._gains_unseen(number, name, deepest)
                found.append(Option(number, gains, None, can_shorten=not member.is_tree))
        return found

    def _can_draft(self, number: int, request_ids: Sequence[str]) -> bool:
        return any(map(self.members[number].can_draft_for, request_ids))

    def _gains_unseen(self, number: int, request_id: str, count: int) -> list[float]:
        """Return the expected accepted tokens of the first 1 to `count` nodes of a draft that is not made yet."""
        acceptance = self.acceptance[number]
        if self.members[number].is_tree:
            return [acceptance.gain_of_tree(request_id)] * count
        return acceptance.gains_by_depth(request_id, count)

    def _count_trials(self, turn: Round, offers: Sequence[Offer | None]) -> None:
        for number, trials in self._trials.items():
            limits = turn.limits_of(number)
            member = self.members[number]
            is_warm = trials.num_drafts > 0
            if limits and member.is_unread:
                self._unread = number, max(limits) * is_warm
            elif limits and is_warm:
                self._observe_draft(number, len(turn.request_ids), max(limits), member.seconds)
            trials.count(
                has_drafted=bool(limits),
                is_chosen=number != self._trial,
                cost=partial(self._cost_of_trial, turn, number),
            )

    def _observe_unread(self, unread: tuple[int, int], size: int, num_nodes: int, other_s: float) -> None:
        """Record the last step's draft, of which the host saw no end: what the rest of the step took longer for it."""
        number, depth = unread
        rest = self.costs.rest(size)
        if rest.is_known and depth:
            more = max(0.0, other_s - rest.at(num_nodes))
            self._observe_draft(number, size, depth, self.members[number].seconds + more)

    def _observe_draft(self, number: int, size: int, depth: int, seconds: float) -> None:
        """Record what a member's draft for `size` requests took."""
        member = self.members[number]
        self.catching_up[number].observe(member.num_delivered, seconds)
        if member.num_delivered <= _few_delivered(member) * size:
            self.costs.observe_draft(number, depth, seconds)

    def _cost_of_trial(self, turn: Round, number: int) -> float:
        """Return how much of this step a draft of a member would take."""
        seconds = self.costs.drafting(number).at(self.members[number].most_nodes)
        return self._plan.cost_of_trial(seconds + self._catching_up_s(turn, number))

    def _count_worth(self, turn: Round, *, has_nodes: bool) -> None:
        """Count what choosing took, and what it was to bring, unless the step was a trial."""
        if self._trial is not None or not self._plan.seconds:
            return
        of_models = sum(self.members[number].seconds for number in self._dear if turn.limits_of(number))
        overhead = perf_counter() - self._began - of_models
        worth = self._worth_at(len(turn.request_ids))
        worth.count(self._plan.tokens, self._plan.seconds, overhead, has_nodes=has_nodes)

    def _worth_at(self, size: int) -> Worth:
        return self._worth[(size - 1).bit_length()]

    def _catching_up_s(self, turn: Round, number: int) -> float:
        """Return the seconds in which a member runs the tokens that it was not told."""
        count = turn.num_waiting(number)
        caught_up = self.catching_up[number].at(_few_delivered(self.members[number]))
        return max(0.0, self.catching_up[number].at(count) - caught_up)


def _few_delivered(member: Member) -> int:
    """Return how many tokens of one request a member in use is told before a draft; more are a prompt, or what it missed."""
    return max(_FEW_TOLD, member.most_nodes + 1)
