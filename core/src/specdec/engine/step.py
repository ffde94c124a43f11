"""One step of the verify loop: a row for each running sample, and what is decided, drafted, scored and accepted of it."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from specdec.config.notices import draft_ends
from specdec.engine.containment.draft import select_rows
from specdec.errors import ConfigError
from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.draft import CheckedDraft, DrawnNodes
from specdec.interfaces.observer import StepStats
from specdec.interfaces.one_time_work import step_time
from specdec.interfaces.sampler import VerifyBatch

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence
    from specdec.interfaces.async_verdict import AsyncVerdict
    from specdec.interfaces.pass_memory import PassMemory, VerdictOffsets
    from specdec.interfaces.request_table import RequestTable
    from specdec.interfaces.scorer import Scores
    from specdec.interfaces.sent import Transfer
    from specdec.interfaces.unread import UnreadVerdict

_NO_LIMIT = 2**31
_NO_ROWS = range(0)


@dataclass(slots=True, eq=False)
class Row:
    """One running sample in one step: first what is planned, then its draft, its place in the pass, and what was kept."""

    sequence: Sequence
    start: int
    """Number of its tokens whose keys and values are in the cache when the step runs. Behind drafts whose verdict is not read
    this and the next one are lower bounds: the device adds the accepted nodes, at most `slack`, and `Step.settle` too."""
    num_tokens: int
    """Number of its tokens when the step runs; one more than are committed behind a verdict that is not read."""
    cap: int = _NO_LIMIT
    """Most nodes that may be drafted."""
    chunk: int = 0
    """Number of tokens that it runs from `start` on: 1 in decode, a chunk of a prompt in prefill; 0 if the token budget is
    spent, or once it has left the step."""
    is_sampled: bool = False
    """Whether a token is chosen for it: its chunk reaches its last token."""
    expected: Ids[int] = ()
    """Tokens that are drafted for it without the proposer; see `ExpectedTokens`."""
    slack: int = 0
    """How many tokens further it may begin, and end, once the verdict on its last draft is read; see `Step.behind`."""

    num_nodes: int = 0
    """Number of its drafted nodes."""
    nodes: Ids[int] = ()
    """Drafted ids that are scored; none while a device has them, see `Step.read_nodes`."""
    parents: Ids[int] | None = None
    """The parent of every node, which precedes it; -1 is the last token. None for a chain, and while a device has them."""
    proposer: str = ""
    """Who drafted them."""

    first: int = -1
    """Its first row in the pass, where its chunk begins; its nodes' rows follow."""
    first_logits: int = -1
    """The row of its last token in the logits; its nodes' rows follow. -1 if it is not sampled."""
    node_slot: int = -1
    """The cache slot of its first node."""
    prompt_rows: range = _NO_ROWS
    """Positions within the chunk whose logits prompt log probabilities need."""
    first_prompt_logits: int = -1
    """The first of their rows in `Scores.prompt_logits`."""

    accepted: Ids[int] = ()
    """Nodes that were kept: accepted, and not behind the end of the text."""
    emitted: Ids[int] = ()
    """Tokens that were kept."""

    def draft(self, nodes: Ids[int], parents: Ids[int] | None = None) -> None:
        """Take drafted ids and parents."""
        self.num_nodes, self.nodes, self.parents = len(nodes), nodes, parents


@dataclass(slots=True, eq=False)
class Step:
    """One step. `Scheduler` makes it, and the engine takes it through propose, score, verify and commit."""

    rows: list[Row]
    """The running samples."""
    preempted: list[Sequence] = field(default_factory=list)
    """Samples that lost their place in the cache in this step and wait to run again."""
    sampled: list[Row] = field(default_factory=list)
    """The rows that are sampled; the drafts, logits and verdicts of a step are theirs."""
    ending: list[Sequence] = field(default_factory=list)
    """Samples that end with the token of the step before, which is not read: they run still, and have no row."""

    num_draft_slots: int = 0
    """Nodes for which every row with a draft needs room in the target's cache, where drafts of all rows are made together
    there; 0 for drafts that are made elsewhere."""
    may_draft: bool = False
    """Whether the configuration allows a draft for any row."""
    is_suspended: bool = True
    """Whether no row may get a draft, by the batch size or because drafts do not pay: the proposer need not be called."""
    is_paused: bool = False
    """Whether the proposer is not called because it failed too often."""
    is_measured: bool = False
    """Whether `adaptive` wants to know what the step cost."""
    is_asked: bool = False
    """Whether the proposer was asked for it before it was launched: before the tokens of the last step were known."""
    is_late: bool = False
    """Whether it was asked for a late draft; see `LateDrafts`."""
    waits: bool = False
    """Whether its draft is made behind a verdict that the host has not read, and its pass needs that read."""
    behind: UnreadVerdict | None = None
    """The verdict of the step before, until the host has read it; see `step_behind`."""

    drawn: DrawnNodes | None = None
    """What nodes were drawn from, of the sampled rows; None if no row carries q."""
    device_nodes: DeviceNodes | None = None
    """The nodes of the sampled rows, if they are on a device; None once the host has read them."""
    num_outside: int = 0
    """How many of them were impossible, also where expected tokens or a grammar took their place; see `DeviceNodes`."""
    transfer: Transfer | None = None
    """What is sent to the device with the pass."""

    batch: VerifyBatch | None = None
    """What the sampler is given."""
    is_cut: bool = True
    """Whether its logits are cut by top-k and top-p before they are verified."""
    scores: Scores | None = None
    owns_states: bool = False
    """Whether its hidden states are copies, which the next pass does not write to."""
    pending: AsyncVerdict | None = None
    """The verification, if it has begun on a device."""
    is_alone: bool = False
    """Whether no step is launched before its verdict is read, because that has raised."""
    has_appended: bool = False
    """Whether that appends the tokens to the lines of the samples."""
    verdict: VerdictOffsets | None = None
    """Where the device has the verdict on drafted nodes, if these were there."""
    is_compacted: bool = False
    """Whether the cache rows of accepted paths of trees move by the verdict on the device."""

    schedule_s: float = 0.0
    propose_s: float = 0.0
    score_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    num_prompt_tokens: int = 0
    """Number of tokens that ran beside the last one of each sampled row; this and the next one are known once the step is
    counted, and without samples that left."""
    num_drafted: int = 0
    """Number of nodes that were verified."""
    _since: float = field(default_factory=step_time)

    @property
    def seconds(self) -> float:
        """Duration of the step in seconds, without what others did between its parts."""
        return self.schedule_s + self.propose_s + self.score_s + self.verify_s + self.commit_s

    def lap(self) -> float:
        """Return the seconds since the last lap, or since the step began."""
        now = step_time()
        seconds, self._since = now - self._since, now
        return seconds

    def take(self, draft: CheckedDraft) -> None:
        """Take the draft of the proposer, whose first rows belong to `rows`: what it has for those that are sampled."""
        if len(self.sampled) < len(draft.rows):
            draft = select_rows(draft, [place for place, row in enumerate(self.rows) if row.is_sampled])
        # Nodes on a device are read with the verdict, or when a grammar or a rule has to know them.
        self.drawn = draft.drawn
        there = self.device_nodes = draft.device_nodes
        for place, row in enumerate(self.sampled):
            row.nodes = draft.rows[place]
            row.num_nodes = len(row.nodes) if there is None else there.num_nodes[place]
            row.parents = None if draft.parents is None else draft.parents[place]
            row.proposer = "" if draft.proposers is None else draft.proposers[place]

    def read_nodes(self) -> None:
        """Give the rows their nodes, if these are on a device; waits for it, unless they came with the verdict."""
        if self.device_nodes is None:
            return
        nodes, parents = self.device_nodes.read()
        for place, row in enumerate(self.sampled):
            row.draft(nodes[place], None if parents is None else parents[place])
        self.num_outside, self.device_nodes = self.device_nodes.num_outside or 0, None

    def draft_expected(self) -> None:
        """Draft the expected tokens where there are some; beside rows with q, which are of one width, no more than these."""
        self.read_nodes()
        drawn = self.drawn if self.drawn is not None and self.drawn.token_ids.shape[1] else None
        most = None if drawn is None else drawn.token_ids.shape[1]
        for row in self.sampled:
            if row.expected and row.sequence.expected is not None:
                row.draft(tuple(row.expected[:most]))
                row.proposer = row.sequence.expected.name
        if drawn is not None:
            is_own, given = torch.tensor([not row.expected for row in self.sampled]), drawn.has_probs
            drawn = replace(drawn, has_probs=is_own if given is None else given & is_own.to(given.device))
        self.drawn = drawn

    def constrain(self) -> None:
        """Take out nodes that a grammar forbids; rows with q stay as they are.

        A chain of point masses is cut before its first forbidden node, a tree after its last allowed one. Nodes
        drawn from q stay and are rejected: the presence of a node must not depend on its own token.
        """
        self.read_nodes()
        for place, row in enumerate(self.sampled):
            grammar, drawn = None if row.sequence.rules is None else row.sequence.rules.grammar, self.drawn
            is_drawn = drawn is not None and (drawn.has_probs is None or bool(drawn.has_probs[place]))
            if grammar is None or not row.nodes or is_drawn:
                continue
            parents = None if row.parents is None else list(row.parents)
            allowed: list[bool] = []
            try:
                allowed = grammar.allowed_nodes(row.nodes, parents)
            except ConfigError:
                pass  # the text needs too much work, as its mask says next
            except BaseException as error:
                draft_ends("following a grammar", error)
            length = len(allowed) if parents is not None else (*allowed, False).index(False)
            while length and not allowed[length - 1]:
                length -= 1
            row.draft(row.nodes[:length], None if parents is None else parents[:length])

    def settle(self, last: Step, num_accepted: Ids[int]) -> None:
        """Move the rows to where they are on the device, once it is read how many nodes of the last step were accepted.

        A row of which that step kept something else, as at the end of a text, leaves.
        """
        assert self.behind is not None
        for own, place in zip(self.rows, self.behind.rows, strict=True):
            count = num_accepted[place]
            own.start, own.num_tokens, own.node_slot = (
                own.start + count,
                own.num_tokens + count,
                own.node_slot + count,
            )
            if len(last.rows[place].emitted) != count + 1:
                own.chunk = own.cap = 0
        self.behind = None
        if self.batch is not None:
            self.batch = replace(self.batch, num_tokens=[row.num_tokens for row in self.sampled])

    def place(self, *, is_cut: bool = True) -> None:
        """Give the rows their places in the pass, in the logits and in the cache; `is_cut` see the field."""
        self.is_cut = is_cut
        first = first_logits = first_prompt = 0
        for row in self.rows:
            if not row.chunk:
                continue
            row.first, row.first_prompt_logits = first, first_prompt
            row.node_slot = row.sequence.first_slot + row.start + row.chunk
            first += row.chunk + row.num_nodes
            first_prompt += len(row.prompt_rows)
            if row.is_sampled:
                row.first_logits = first_logits
                first_logits += 1 + row.num_nodes

    def verify_batch(
        self, num_top_k: int, pass_memory: PassMemory | None, table: RequestTable | None
    ) -> VerifyBatch:
        """Return what the sampler is given.

        Args:
            num_top_k: number of the most probable ids of every row that the proposer needs.
            pass_memory: the scorer's.
            table: where the samples have lines; None without.
        """
        rows = self.sampled
        parents = None
        if any(row.parents is not None for row in rows):
            parents = [chain(row) if row.parents is None else row.parents for row in rows]
        return VerifyBatch(
            nodes=tuple(row.nodes for row in rows),
            num_tokens=[row.num_tokens for row in rows],
            seeds=[row.sequence.seed for row in rows],
            sample_indices=[row.sequence.sample_index for row in rows],
            sampling_params=[row.sequence.params for row in rows],
            parents=parents,
            drawn=self.drawn,
            num_logprobs=[-1 if r.sequence.logprobs is None else r.sequence.logprobs.num_few for r in rows],
            num_top_k=num_top_k,
            device_nodes=self.device_nodes,
            pass_memory=pass_memory,
            table=table,
            lines=() if table is None else [row.sequence.line for row in rows],
        )

    def verdict_on(self, sequences: list[Sequence]) -> VerdictOffsets | None:
        """Return `verdict` if it is on these samples, in this order, and all that it emits was kept."""
        kept = [row.sequence for row in self.sampled if len(row.emitted) == len(row.accepted) + 1]
        return self.verdict if kept == sequences else None

    def leave(self, running: Ids[Sequence]) -> bool:
        """Take the samples that no longer run out of the step; what its pass computes of them is not read.

        Returns:
            whether any is left.
        """
        left = set(running)
        for row in self.rows:
            if row.sequence not in left:
                row.chunk = row.cap = 0
        return any(row.sequence in left for row in self.rows)

    def stats(self) -> StepStats:
        """Return what observers are told of it."""
        return StepStats(
            num_requests=len(self.rows),
            num_prompt_tokens=self.num_prompt_tokens,
            num_drafts=sum(1 for row in self.sampled if row.num_nodes and row.chunk),
            num_draft_tokens=self.num_drafted,
            num_accepted_tokens=sum(len(row.accepted) for row in self.sampled),
            num_emitted_tokens=sum(len(row.emitted) for row in self.sampled),
            schedule_ms=1e3 * self.schedule_s,
            propose_ms=1e3 * self.propose_s,
            score_ms=1e3 * self.score_s,
            verify_ms=1e3 * self.verify_s,
            commit_ms=1e3 * self.commit_s,
        )


def chain(row: Row) -> range:
    """Return the parents of a row's nodes, each of which is the child of the one before."""
    return range(-1, row.num_nodes - 1)
