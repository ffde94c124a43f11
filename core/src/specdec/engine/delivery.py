"""Tells the proposer what is new: committed tokens and the hidden states that chose them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Ids

import numpy as np
import torch

from specdec.engine.draws import EngineDraws
from specdec.engine.sequence import Sequence
from specdec.interfaces.batch import DeviceProposeBatch, HostIds, ProposeBatch
from specdec.interfaces.capability import Capability
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.target import TargetInfo

logger = logging.getLogger("specdec")

_NOTHING = np.empty(0, np.int32)
_NOTHING.flags.writeable = False
_MAX_KEPT = 1024
"""Tokens of one sequence whose states are kept for a proposer that rests; one piece of a prompt may be longer."""
_MAX_WAITING = 2048
"""Tokens of all sequences whose states wait, beyond which a proposer that rests is called: no memory was set aside for more."""
_MAX_PIECES = 16
"""Steps whose states of one sequence are kept apart, before they are joined."""
_MAX_SHARED_ROWS = 64
"""Rows of a pass of which small parts are kept without a copy."""


class Delivery:
    """Builds one `ProposeBatch` per step; every running sequence is a row of it.

    Args:
        no_states: states `[0, H]` of every kind that tokens are paired with and wait for, the final ones first; none where
            the proposer needs none.
        is_on_device: whether the proposer takes the device form.
        device: where device tensors live.
    """

    def __init__(
        self, *, no_states: tuple[torch.Tensor, ...], is_on_device: bool, device: torch.device
    ) -> None:
        self.needs_hidden = bool(no_states)
        self._no_states = no_states
        self._is_on_device = is_on_device
        self._device = device
        self.num_without_states = 0
        """Requests that get no further drafts because states of theirs are gone."""
        self._reasons: set[str] = set()

    def build(self, sequences: list[Sequence], max_nodes: list[int]) -> ProposeBatch | DeviceProposeBatch:
        """Return the batch of this step and mark its tokens, and what came of the last draft, as delivered."""
        starts = [sequence.delivered for sequence in sequences]
        ends = [self._deliverable_end(sequence) for sequence in sequences]
        batch: ProposeBatch | DeviceProposeBatch
        if self._is_on_device:
            batch = self._device_form(sequences, max_nodes, starts, ends)
        else:
            batch = self._host_form(sequences, max_nodes, starts, ends)
        for sequence, end in zip(sequences, ends, strict=True):
            sequence.delivered = end
            sequence.is_introduced = True
            sequence.last_num_drafted = sequence.last_num_accepted = 0
            sequence.deliverable_hidden.clear()
        return batch

    def give_up(self, sequence: Sequence, reason: str) -> None:
        """Draft nothing further for a sequence whose states are gone; counted, and each reason logged once."""
        sequence.deliverable_hidden.clear()
        if not sequence.has_proposals or sequence.is_finished:
            return
        sequence.has_proposals = False
        self.num_without_states += 1
        if reason not in self._reasons:
            self._reasons.add(reason)
            logger.warning(
                "a request gets no further drafts: the proposer reads hidden states, and %s; output is not affected (logged "
                "once, counted in specdec:requests_without_states)", reason,
            )  # fmt: skip

    def keep_hidden(self, sequence: Sequence, passed: tuple[torch.Tensor, ...], rows: list[int]) -> None:
        """Keep the states of newly computed rows until the tokens they chose are delivered.

        They pile up while the proposer rests or is paused. Beyond a limit they are dropped, see `give_up`.

        Args:
            sequence: the sequence, before its `num_computed` moves.
            passed: states `[T, H]` of the pass that computed the rows, of every kind, the final ones first.
            rows: committed rows of the pass: the chunk and the accepted nodes.
        """
        if not self.needs_hidden or not sequence.has_proposals:
            return
        kept = sum(states[0].shape[0] for states in sequence.deliverable_hidden)
        if kept and kept + len(rows) > _MAX_KEPT:
            self.give_up(sequence, f"was not called for {_MAX_KEPT} tokens, beyond which states are not kept")
            return
        chosen: slice | torch.Tensor
        if rows and rows[-1] - rows[0] == len(rows) - 1:
            chosen = slice(rows[0], rows[-1] + 1)
        else:  # a path through a tree, or nothing
            chosen = torch.tensor(rows, dtype=torch.int64, device=self._device)
        states = tuple(state[chosen] for state in passed)
        num_rows = len(passed[0])
        if sequence.num_computed == sequence.delivered == 0:  # nothing chose the first token
            states = tuple(torch.cat((state.new_zeros(1, state.shape[1]), state)) for state in states)
        elif isinstance(chosen, slice) and num_rows > max(_MAX_SHARED_ROWS, 2 * len(rows)):
            states = tuple(state.clone() for state in states)  # a view would keep all of the pass alive
        pieces = sequence.deliverable_hidden
        pieces.append(states)
        if len(pieces) > _MAX_PIECES:
            pieces[:] = [tuple(torch.cat(column) for column in zip(*pieces, strict=True))]

    def is_overdue(self, sequences: list[Sequence]) -> bool:
        """Return whether too many states wait: of all these together, or of one, whose states would soon be dropped."""
        if not self.needs_hidden:
            return False
        waiting = [s.num_with_states - s.delivered for s in sequences if s.has_proposals]
        return max(waiting, default=0) > _MAX_KEPT // 2 or sum(waiting) > _MAX_WAITING

    def is_missing(self, sequences: list[Sequence]) -> bool:
        """Return whether one of these can now be told of a cached prefix that the proposer did not hold."""
        return any(s.delivered < s.num_missing <= s.num_with_states for s in sequences)

    def forget(self, sequence: Sequence) -> None:
        """Deliver everything again from position 0, as far as its states are still to come."""
        sequence.delivered = sequence.num_missing = 0
        sequence.deliverable_hidden.clear()

    def _deliverable_end(self, sequence: Sequence) -> int:
        if not self.needs_hidden:
            return sequence.num_tokens
        # As many tokens as there are states, also for a sequence that has ended and given its cache back.
        end = sequence.num_with_states
        assert end <= sequence.num_tokens, "more hidden states than tokens"
        return end

    def _host_form(
        self, sequences: list[Sequence], max_nodes: list[int], starts: list[int], ends: list[int]
    ) -> ProposeBatch:
        pieces = [s.token_ids[a:b] for s, a, b in zip(sequences, starts, ends, strict=True) if b > a]
        tokens: HostIds
        if len(pieces) == 1:
            tokens = pieces[0]
        elif pieces:
            tokens = np.concatenate(pieces)
            tokens.flags.writeable = False
        else:
            tokens = _NOTHING
        hidden, aux, has_hidden = self._hidden(sequences, starts)
        return ProposeBatch(
            request_ids=tuple(s.row_id for s in sequences),
            max_nodes=tuple(max_nodes),  # not the list that the draft is checked against
            num_tokens=[s.num_tokens for s in sequences],
            num_prompt_tokens=[s.num_prompt_tokens for s in sequences],
            starts=starts,
            counts=[end - start for start, end in zip(starts, ends, strict=True)],
            new_token_ids=tokens,
            last_num_drafted=[s.last_num_drafted for s in sequences],
            last_num_accepted=[s.last_num_accepted for s in sequences],
            sampling_params=tuple(s.params for s in sequences),
            draws=EngineDraws(sequences, self._device),
            token_ids_of=lambda row: sequences[row].token_ids,
            allowed_after=_allowed_after(sequences),
            hidden_states=hidden,
            aux_hidden_states=aux,
            has_hidden=has_hidden,
        )

    def _hidden(
        self, sequences: list[Sequence], starts: list[int]
    ) -> tuple[torch.Tensor | None, tuple[torch.Tensor, ...], torch.Tensor | None]:
        if not self.needs_hidden:
            return None, (), None
        kept = [states for sequence in sequences for states in sequence.deliverable_hidden]
        joined = (
            list(kept[0] if kept else self._no_states)
            if len(kept) < 2
            else [torch.cat(column) for column in zip(*kept, strict=True)]
        )
        flags = torch.ones(joined[0].shape[0], dtype=torch.bool, device=self._device)
        row = 0
        for sequence, start in zip(sequences, starts, strict=True):
            if start == 0 and sequence.deliverable_hidden:
                flags[row] = False
            row += sum(states[0].shape[0] for states in sequence.deliverable_hidden)
        return joined[0], tuple(joined[1:]), flags

    def _device_form(
        self, sequences: list[Sequence], max_nodes: list[int], starts: list[int], ends: list[int]
    ) -> DeviceProposeBatch:
        bound = max(max_nodes, default=0)
        width = max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
        tokens = np.full((len(sequences), max(width, 1)), -1, np.int64)
        for row, (sequence, start, end) in enumerate(zip(sequences, starts, ends, strict=True)):
            tokens[row, : end - start] = sequence.token_ids[start:end]
        facts = torch.tensor(
            [
                max_nodes,
                [s.num_tokens for s in sequences],
                starts,
                [end - start for start, end in zip(starts, ends, strict=True)],
            ]
        ).to(self._device, non_blocking=True)
        return DeviceProposeBatch(
            request_ids=tuple(s.row_id for s in sequences),
            max_nodes=facts[0],
            max_nodes_bound=bound,
            num_tokens=facts[1],
            starts=facts[2],
            counts=facts[3],
            new_token_ids=torch.from_numpy(tokens).to(self._device, non_blocking=True),
            sampling_params=tuple(s.params for s in sequences),
            draws=EngineDraws(sequences, self._device),
        )


def no_states(proposer: Proposer, info: TargetInfo) -> tuple[torch.Tensor, ...]:
    """Return states of no token, `[0, H]` each: the final ones and those of named layers; none if the proposer needs none."""
    if not proposer.capabilities & {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}:
        return ()
    none = torch.empty(0, info.hidden_size, dtype=info.dtype, device=info.device)
    return (none,) * (1 + len(proposer.aux_layer_ids))


def _allowed_after(sequences: list[Sequence]) -> Callable[[int, Ids[int]], torch.Tensor | None] | None:
    """Return the function behind `ProposeBatch.allowed`, or None where no row has a grammar."""
    grammars = [None if s.rules is None else s.rules.grammar for s in sequences]
    if not any(grammars):
        return None

    def allowed(row: int, path: Ids[int]) -> torch.Tensor | None:
        grammar = grammars[row]
        return None if grammar is None else grammar.mask_after(path)

    return allowed
