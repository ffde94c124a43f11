"""Whole passes of a model or head in one compiled call."""

from __future__ import annotations

import torch

from specdec.interfaces import Declined
from specdec_kernels.cpu.chain import CompiledChain
from specdec_kernels.cpu.compiled.threads import use_threads
from specdec_kernels.cpu.head_parts import head_stack
from specdec_kernels.cpu.model_parts import model_stack
from specdec_kernels.cpu.pass_chunks import chunks_of, in_chunks, run_chunks, supports_chunks
from specdec_kernels.cpu.stack import CompiledStack
from specdec_kernels.layers.rotary import RotaryTables
from specdec_runtime.interfaces import DraftHead, Form, ForwardOutput, PackedBatch, Runner


class CompiledForm(Form):
    """Runs short passes, and on most processors long ones in pieces, in compiled loops; all in float32 arithmetic.

    Args:
        stack: the prepared parts.
        rotary: rotary factors.
        runner: the runner whose cache is used.
        inner: the form of passes for which compiled products are not the fastest.
    """

    def __init__(self, stack: CompiledStack, rotary: RotaryTables, runner: Runner, inner: Form) -> None:
        self._stack, self._rotary, self._runner, self._inner = stack, rotary, runner, inner
        self.is_invariant = runner.is_invariant
        self._supports_chunks = supports_chunks(stack)
        self._chain = CompiledChain(stack, rotary, runner)
        if self.is_invariant:
            # Made once for all positions, because a table that grows is recomputed.
            rotary.hold(runner.max_context)

    @property
    def chain(self) -> CompiledChain:
        """See `Form.chain`."""
        return self._chain

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """See `Form.forward`."""
        chunks = (
            in_chunks(batch)
            if self.is_invariant
            else chunks_of(self._stack, batch, supports_chunks=self._supports_chunks)
        )
        if chunks is None:
            return self._inner.forward(batch, features)
        wanted, dtype = self._runner.wanted, self._runner.dtype
        longest = batch.longest or max(s.num_cached + s.num_rows for s in batch.segments)
        if longest > self._rotary.num_positions:
            self._rotary.cover(longest)
        given = None if features is None else features.float().contiguous().numpy()
        logits, states, aux = run_chunks(
            self._stack, batch, chunks, self._runner.cache, self._rotary.by_layer, wanted.aux_layer_ids, given
        )
        output = ForwardOutput(torch.from_numpy(logits))
        if wanted.final:
            # A head's carry stays in float32, in which the next step takes it.
            kept = torch.float32 if features is not None else dtype
            output.hidden_states = torch.from_numpy(states).to(kept)
        if len(aux):
            output.aux_hidden_states = tuple([torch.from_numpy(inputs).to(dtype) for inputs in aux])
        return output

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:
        """See `Form.warm_up`."""
        self._rotary.forget()
        super().warm_up(batch, features)


def make_form(runner: Runner, stage: int, inner: Form) -> CompiledForm | Declined:
    """Return the compiled form of a model, or of a stage of a head."""
    use_threads()
    is_head = isinstance(runner.module, DraftHead)
    made = head_stack(runner, stage) if is_head else model_stack(runner)
    return made if isinstance(made, Declined) else CompiledForm(*made, runner, inner)
