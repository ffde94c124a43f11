"""Passes and draft loops of a model or head captured in graphs."""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter

import torch

from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.cuda.graphs import MAX_BYTES, DraftGraphs, PassGraphs, Recorder
from specdec_kernels.cuda.graphs.pass_shape import (
    FEW_REQUESTS,
    bounds_for,
    loops_for,
    prompt_shapes_for,
    shapes_for,
)
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_start import Reads
from specdec_kernels.cuda.paged_pass import page_size_of
from specdec_kernels.triton.kv_compact.config import path_lengths
from specdec_kernels.triton.paged_attention.tree import WORD
from specdec_runtime.interfaces import Chain, DraftHead, Form, ForwardOutput, PackedBatch, PassLimits, Runner

logger = logging.getLogger("specdec")


class GraphForm(Form):
    """Replays captured passes; the inner form runs the passes that are captured, and all others.

    Args:
        runner: the runner, whose attention reads all its inputs from tensors.
        inner: the form whose operations are captured.
        recorder: captures them.
        has_chain: whether draft loops are captured as well.
    """

    uses_attention = True

    def __init__(self, runner: Runner, inner: Form, recorder: Recorder, *, has_chain: bool) -> None:
        self._runner, self._inner, self._recorder, self._has_chain = runner, inner, recorder, has_chain
        self.is_invariant = inner.is_invariant
        self.reserved_bytes = MAX_BYTES * (2 if has_chain else 1)
        self._passes: PassGraphs | None = None
        self._chain: DraftGraphs | None = None

    @property
    def chain(self) -> Chain | None:
        """The recorded draft loop; None if there is none."""
        return self._chain

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        """Replay the recording of a pass's shape; passes that have none run the form below."""
        given = None if features is None else features.to(self._runner.dtype)
        outputs = None if self._passes is None else self._passes.forward(batch, given)
        if outputs is None:
            return self._inner.forward(batch, features)
        logits, *states = outputs
        return ForwardOutput(
            logits=logits,
            hidden_states=states.pop(0) if self._runner.wanted.final else None,
            aux_hidden_states=tuple(states),
        )

    def rebind(self) -> None:
        """Forget all recordings, which read the old cache."""
        attention, runner = self._runner.attention, self._runner
        self._passes = self._chain = None
        if not isinstance(attention, PagedAttention):
            return
        if any(shape.dtype not in attention.dtypes for shape in runner.cache.shapes.values()):
            return
        attention.keep_calls()
        place = self._run_whole, self._recorder, attention, runner.max_context
        words = (
            -(-(1 + runner.num_tree_nodes) // WORD)
            if runner.num_tree_nodes and not attention.is_invariant
            else 0
        )
        pass_memory = None if runner.is_draft else runner.pass_memory
        self._passes = PassGraphs(
            *place, runner.rounding, keeps_outputs=runner.is_draft, mask_words=words, pass_memory=pass_memory
        )
        if self._has_chain:
            reads, head = Reads(context=runner.context, write=attention.write), runner.module
            if isinstance(head, DraftHead):
                reads = Reads(head.combine, head.mask_feature)
            of_head = self._num_positions(), runner.device, self._features(), reads
            self._chain = DraftGraphs(*place, *of_head, runner.pass_memory)

    def prepare(self, limits: PassLimits) -> None:
        """Record passes of chains and, for a target, with prompts, and the draft loops that are expected."""
        runner = self._runner
        if self._passes is None or runner.device.type != "cuda":
            return
        page_size, num_requests = page_size_of(runner.cache.num_slots), limits.num_requests
        rows_each = 1 + runner.num_tree_nodes
        if runner.context is not None and runner.expected is not None:  # its passes are last tokens and masks
            rows_each += runner.expected[1].num_steps
        shapes = shapes_for(num_requests, runner.max_context, page_size, rows_each)
        if runner.context is not None:
            shapes = [replace(shape, is_causal=runner.context.is_causal) for shape in shapes]
        if not runner.is_draft:
            shapes += prompt_shapes_for(limits, runner.max_context, page_size)
        started = perf_counter()
        self._passes.prepare(shapes, runner.device, self._features())
        if self._chain is not None and runner.expected is not None:
            most = self._chain.max_rows
            if runner.expected[1].rules.width > 1:
                most = self._chain.max_tree_nodes // runner.expected[1].rules.width
            loops = loops_for(min(num_requests, most), runner.max_context)
            self._chain.prepare(loops, page_size, *runner.expected)
        made, seconds = self.levels(), perf_counter() - started
        logger.info(
            "%s: %d passes and draft loops are captured in graphs, %.0f MiB, in %.1f s",
            type(runner.module).__name__, made["graph_recordings"], made["graph_bytes"] / 2**20, seconds,
        )  # fmt: skip
        if isinstance(runner.attention, PagedAttention):
            most = max(num_requests, FEW_REQUESTS)
            runner.attention.compile(most, bounds_for(runner.max_context))
        # Moves of accepted paths are compiled too.
        if runner.num_tree_nodes:
            for length in path_lengths(runner.num_tree_nodes):
                no_paths = torch.full((1, length), -1, device=runner.device)
                runner.cache.gather(no_paths[:, 0] + 1, no_paths)

    def counts(self) -> dict[str, int]:
        """Return counters for the metrics, by name."""
        made = self._made()
        return {
            "graph_replays": sum(graphs.num_replays for graphs in made),
            "graph_misses": sum(graphs.num_plain for graphs in made),
            "graph_failures": sum(graphs.failure is not None for graphs in made),
        }

    def levels(self) -> dict[str, int]:
        """Return gauges for the metrics, by name."""
        made = self._made()
        return {
            "graph_recordings": sum(graphs.num_recordings for graphs in made),
            "graph_bytes": sum(graphs.num_bytes for graphs in made),
        }

    def _made(self) -> list[PassGraphs | DraftGraphs]:
        return [made for made in (self._passes, self._chain) if made is not None]

    def _run_whole(self, batch: PackedBatch, features: torch.Tensor | None) -> Tensors:
        """Run a pass whose logits are all needed; returns all outputs of the pass."""
        output = self._inner.forward(batch, features)
        hidden = () if output.hidden_states is None else (output.hidden_states,)
        return (output.logits, *hidden, *output.aux_hidden_states)

    def _features(self) -> torch.Tensor | None:
        """Return features `[1, F]` of a head, for their width and dtype; None for a model."""
        module, runner = self._runner.module, self._runner
        if not isinstance(module, DraftHead):
            return None
        return torch.zeros(1, module.feature_size, dtype=runner.dtype, device=runner.device)

    def _num_positions(self) -> int:
        """Return the number of positions that the module may be run at."""
        runner = self._runner
        if isinstance(runner.module, DraftHead):
            return runner.max_context
        config = runner.module.config.get_text_config()  # type: ignore[union-attr, operator]  # a transformers model
        return min(getattr(config, "max_position_embeddings", None) or runner.max_context, runner.max_context)
