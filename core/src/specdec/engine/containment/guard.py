"""Contains a proposer's failures: whatever it raises or returns costs only speed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Set
from collections.abc import Sequence as Ids
from dataclasses import replace
from operator import index as as_int

import torch

from specdec.engine.containment.draft import DraftError, check_draft, check_vocab_map, copied
from specdec.engine.metrics import EngineMetrics
from specdec.errors import PluginError, described, is_interrupt, line_of
from specdec.interfaces.batch import ProposeBatch, TokenIds
from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.left_out import LeftOut
from specdec.interfaces.one_time_work import step_time
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.unread import NeedsTokens
from specdec.registry.plugin_call import call_plugin

logger = logging.getLogger("specdec")

_MAX_FAILURES = 3
_FIRST_PAUSE_STEPS = 64
_MAX_PAUSE_STEPS = 4096
_GOOD_CALLS = 512
"""Number of calls without a failure after which the pause length is reset to the first one."""
_MIN_BUDGET_S = 0.05
_BUDGET_FACTOR = 4.0
_WARMUP_STEPS = 8
_NO_RESUME = "has no resume"
_PROMPT_PIECE = 32
"""More new tokens of one request than this are a prompt or a redelivered text."""


class ProposerGuard:
    """Calls a proposer so that its failures cannot affect the output.

    Whatever it raises but an interrupt by the user is contained; what it returns is copied and checked here; and settings
    of the process that it changes are put back. Its attributes are read once, when the guard is made.

    After `_MAX_FAILURES` failures or time overruns in a row the proposer is paused. Each pause is twice as
    long as the one before, until `_GOOD_CALLS` calls have succeeded.

    Args:
        proposer: the proposer.
        vocab_size: number of ids that a draft may use.
        is_fallback: False re-raises the proposer's exceptions (`on_proposer_error="raise"`).
        is_strict: True raises on malformed drafts (`strict_drafts=True`), which `is_fallback=False` does as well.
        supports_trees: whether drafts may be trees: the proposer drafts them and the sampler verifies them.
        metrics: failures are counted there.
    """

    def __init__(
        self,
        proposer: Proposer,
        vocab_size: int,
        *,
        is_fallback: bool,
        is_strict: bool,
        supports_trees: bool = True,
        metrics: EngineMetrics | None = None,
    ) -> None:
        self.proposer = proposer
        self.name = str.__str__(f"{proposer.name}")
        self.capabilities = frozenset(each for each in Capability if each in proposer.capabilities)
        self.aux_layer_ids = tuple(map(as_int, proposer.aux_layer_ids))
        self.can_resume = type(proposer).resume is not Proposer.resume
        """Whether the proposer implements `resume`."""
        self.metrics = metrics or EngineMetrics()
        self.left_out: Mapping[str, LeftOut] = {}
        """`Proposer.left_out` after the last call that succeeded."""
        self._num_contained = 0
        self._logged: set[str] = set()
        self._vocab_size = vocab_size
        self._is_fallback = is_fallback
        self._is_strict = is_strict
        self._supports_trees = supports_trees
        self.reads_drafts = False
        """Whether drafts are read at once, also with `Draft.num_nodes`."""
        self._failures = 0
        self._num_good = 0
        self._pause_length = _FIRST_PAUSE_STEPS
        self.pause_left = 0
        """Number of steps of the pause that are left; 0 if the proposer is not paused."""
        self._num_calls = 0
        self._target_s = 0.0
        self._budget_s = _MIN_BUDGET_S
        self._offered_map: torch.Tensor | None = None
        self._vocab_map: torch.Tensor | None = None  # an own copy of it, which passed the check

    def observe_target(self, seconds: float) -> None:
        """Record the duration of the target's pass and its verification, the basis of the time budget."""
        self._target_s = seconds if self._target_s == 0.0 else 0.9 * self._target_s + 0.1 * seconds
        self._budget_s = max(_MIN_BUDGET_S, _BUDGET_FACTOR * self._target_s)

    def propose(self, batch: ProposeBatch, max_nodes: list[int]) -> CheckedDraft | None:
        """Return a draft that can be scored, or None if the proposer failed and its state must be dropped.

        Raises:
            NeedsTokens: if the host has to read the last verdict first; see `Capability.BEFORE_VERDICT`.
        """
        counts = list(batch.counts)
        started = step_time()
        try:
            offered, changed = call_plugin(self.proposer.propose, batch)
            if changed:
                self._note_changes(changed)
            draft, num_cut, flaw = check_draft(
                offered, max_nodes, self._vocab_size, supports_trees=self._supports_trees, reads=self.reads_drafts,
                name=self.name,
            )  # fmt: skip
            drawn = draft.drawn
            if drawn is not None and drawn.vocab_map is not None:
                own_map = self._own_map(drawn.vocab_map, drawn.node_probs.shape[2])
                draft = replace(draft, drawn=replace(drawn, vocab_map=own_map))
            contained = as_int(self.proposer.num_contained)
            told = self.proposer.left_out
            self.left_out = _left_out(told) if told else {}
        except BaseException as error:
            if isinstance(error, NeedsTokens) and batch.num_unread:
                raise
            self._contain(error, "raised", hint="; 'on_proposer_error': \"raise\" lets it through")
            return None
        self.metrics.proposer_errors += contained - self._num_contained
        self._num_contained = contained
        if num_cut:
            self._note_flaw(num_cut, flaw)
        elif flaw is not None:
            self._note(flaw, "drafts what cannot gain")
        # Each token of a form of the target may take as long as a pass of the target.
        is_target = Capability.TARGET_CACHE in self.capabilities
        self._watch_time(step_time() - started, counts, max(max_nodes, default=0) if is_target else 0)
        return draft

    def count_invalid_nodes(self, num_outside: int) -> None:
        """Count impossible nodes that were first read with the verdict on them."""
        self._note_flaw(
            num_outside, "an id or a parent that is impossible, or a row of q that is no distribution"
        )

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return how many tokens of a cached prefix the proposer holds; 0 if it fails or is paused.

        Args:
            request_id: the request's row id.
            token_ids: the prefix; the proposer gets a copy.
        """
        if self.pause_left:
            return 0
        shown = token_ids.copy()
        shown.flags.writeable = False
        started = step_time()
        try:
            offered, changed = call_plugin(self.proposer.resume, request_id, shown)
            if changed:
                self._note_changes(changed)
            held = as_int(offered) if hasattr(offered, "__index__") else -1
            if not 0 <= held <= len(token_ids):
                raise DraftError(
                    f"proposer {self.name!r}: resume returned {offered!r} for a prefix of {len(token_ids)} tokens: give how "
                    f"many of them it holds, 0 to {len(token_ids)}"
                )
        except BaseException as error:
            self._contain(error, "raised in resume")
            self.finish([request_id], FinishReason.ERROR)
            return 0
        seconds = step_time() - started
        budget = self._budget_s * (1 + len(token_ids) / _PROMPT_PIECE)
        if seconds > budget and self._num_calls > _WARMUP_STEPS:
            self._overrun(seconds, budget, "is slow in resume")
        return held

    def note_missing(self, num_missing: int, num_cached: int) -> None:
        """Count tokens that the target recomputes for the proposer; warn once if it has no `resume`.

        Args:
            num_missing: how many.
            num_cached: tokens of the cached prefix.
        """
        self.metrics.prefix_tokens_rerun += num_missing
        if not self.can_resume and _NO_RESUME not in self._logged:
            self._logged.add(_NO_RESUME)
            logger.warning(
                "proposer %r reads hidden states and has no `resume`, so cached prefixes are not used: %d tokens of a prompt "
                "that are in the prefix cache are computed again, and so with every request (logged once, counted in "
                "specdec:prefix_tokens_rerun); implement Proposer.resume, or set enable_prefix_caching=False",
                self.name, num_cached,
            )  # fmt: skip

    def finish(self, request_ids: Ids[str], reason: FinishReason) -> None:
        """Tell the proposer to drop state; its exceptions are contained."""
        if not request_ids:
            return
        try:
            _, changed = call_plugin(self.proposer.finish, list(request_ids), reason)
            if changed:
                self._note_changes(changed)
        except BaseException as error:
            self._contain(error, "raised in finish", is_pausing=False)

    def count_changes(self, changed: list[str]) -> None:
        """Count settings of the process that the proposer changed and that were put back."""
        if changed:
            self.metrics.proposer_errors += 1
            self._note(f"{', '.join(changed)}; put back", "changed settings of the process")

    def _note_changes(self, changed: list[str]) -> None:
        if not self._is_fallback:
            raise PluginError(f"proposer {self.name!r} changed settings of the process: {', '.join(changed)}")
        self.count_changes(changed)

    def _contain(self, error: BaseException, what: str, *, hint: str = "", is_pausing: bool = True) -> None:
        """Count the exception that is being handled; re-raises what is not to be contained."""
        is_wanted = not self._is_fallback or (self._is_strict and isinstance(error, DraftError))
        if is_interrupt(error):
            raise
        remedy = undeclared(error, self.capabilities)
        if is_wanted:
            if remedy:
                error.add_note(f"proposer {self.name!r}: {remedy}")
            raise
        self.metrics.proposer_errors += 1
        self._note(f"{described(error)}{line_of(error)}{'; ' * bool(remedy)}{remedy}{hint}", what)
        if is_pausing:
            self._fail()

    def _note_flaw(self, num_nodes: int, flaw: str | None) -> None:
        if self._is_strict or not self._is_fallback:
            raise DraftError(f"proposer {self.name!r} returned a draft that cannot be scored: {flaw}")
        self.metrics.proposer_nodes_cut += num_nodes
        self._note(
            f"{flaw}; what cannot be scored is cut, and strict_drafts=True raises",
            "returned a draft that cannot be scored",
        )

    def _own_map(self, offered: torch.Tensor, num_ids: int) -> torch.Tensor:
        """Return an own copy of a vocabulary map, checked the first time; proposers pass the same tensor in every step."""
        own = self._vocab_map
        if own is None or offered is not self._offered_map or len(own) != num_ids:
            own = copied(offered)
            if len(own) != num_ids:
                raise DraftError(f"Draft.vocab_map has {len(own)} ids for a q over {num_ids}")
            check_vocab_map(own, self._vocab_size)
            self._offered_map, self._vocab_map = offered, own
        return own

    def _watch_time(self, seconds: float, counts: list[int], num_passes: int) -> None:
        """Compare a call's duration with the budget, of at least `num_passes` passes; `counts` are its rows' new tokens."""
        self._num_calls += 1
        budget = max(self._budget_s, num_passes * self._target_s)
        if seconds > budget:
            # A proposer's model has to prefill prompts: each piece of one may take as long as a step.
            num_prompt = sum(count for count in counts if count > _PROMPT_PIECE)
            budget *= 1 + num_prompt / _PROMPT_PIECE
        if self._num_calls <= _WARMUP_STEPS or seconds <= budget:
            self._failures = 0
            self._num_good += 1
            if self._num_good >= _GOOD_CALLS:
                self._pause_length = _FIRST_PAUSE_STEPS
            return
        self._overrun(seconds, budget, "is slow")

    def _overrun(self, seconds: float, budget: float, what: str) -> None:
        self.metrics.proposer_overruns += 1
        self._note(f"took {1e3 * seconds:.0f} ms of a budget of {1e3 * budget:.0f} ms", what)
        self._fail()

    def _fail(self) -> None:
        self._num_good = 0
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            self._failures = 0
            self.pause_left = self._pause_length
            self._pause_length = min(2 * self._pause_length, _MAX_PAUSE_STEPS)
            self.metrics.proposer_pauses += 1

    def _note(self, message: str, what: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            logger.warning(
                "proposer %r %s (%s); output is not affected, this is logged once and counted",
                self.name, what, message,
            )  # fmt: skip


def _left_out(offered: Mapping[str, LeftOut]) -> Mapping[str, LeftOut]:
    """Return an own copy of `Proposer.left_out`."""
    return {
        str.__str__(f"{name}"): LeftOut(str.__str__(f"{why.reason}"), bool(why.can_return))
        for name, why in offered.items()
    }


def undeclared(error: BaseException, capabilities: Set[Capability]) -> str:
    """Return the remedy for an exception after a read of hidden states that were not declared, else "".

    Args:
        error: what the proposer raised. Undeclared states are None, so it speaks of a `NoneType`, and one of the functions
            that it passed through reads the field.
        capabilities: those that the proposer declares.
    """
    if Capability.HIDDEN_STATES in capabilities or "NoneType" not in described(error):
        return ""
    if any("hidden_states" in frame.f_code.co_names for frame, _ in traceback.walk_tb(error.__traceback__)):
        return "to read batch.hidden_states declare Capability.HIDDEN_STATES"
    return ""
