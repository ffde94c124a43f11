"""Base class of runners: a KV cache and an attention backend."""

from __future__ import annotations

import torch

from specdec.runner.attention_backend import BackendFactory
from specdec.runner.chain import Chain, Chains, ChainWork, NewRows
from specdec.runner.fused.chain import HostChain
from specdec.runner.graphs import ChainGraphs, PagedBackend, PassGraphs, Recorder, RunPass
from specdec.runner.inference import in_inference_mode
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PROBE_ROWS
from specdec.runner.sdpa import SdpaBackend


class CachedRunner:
    """A KV cache and its attention backend.

    Args:
        device: where cache and attention live.
        max_context: maximum sequence length, in tokens.
        make_backend: makes the attention backend of a cache; None uses torch's attention.
        recorder: captures passes in graphs (such as CUDA graphs); None runs every pass eagerly.
    """

    def __init__(
        self,
        device: torch.device,
        max_context: int,
        make_backend: BackendFactory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.device = device
        self.max_context = max_context
        self._make_backend: BackendFactory = make_backend or SdpaBackend
        self._recorder = recorder
        self.cache = KVCache(PROBE_ROWS, device)
        self.backend = self._make_backend(self.cache, max_context)
        self.num_fallbacks = 0
        """Number of models or head stages that use their own forward although a faster form was requested."""
        self.rounding = 0.0
        """Relative distance of the model's own logits from those in wider arithmetic, if measured."""

    @property
    def bytes_per_token(self) -> int:
        """Cache bytes per token, summed over all layers."""
        return self.cache.bytes_per_token

    @property
    def num_recorded(self) -> int:
        """Number of `Graphs` objects whose recordings this runner may hold."""
        return 0 if self._recorder is None else 1

    @property
    def recorded(self) -> list[PassGraphs | ChainGraphs]:
        """The objects that replay this runner's passes and draft loops; empty if nothing is recorded."""
        return []

    @property
    def chain(self) -> Chain | None:
        """The draft loop of this model: compiled on the host, recorded on a device; None if there is none."""
        return None

    @property
    def max_chain_rows(self) -> int:
        """Maximum number of rows for `draft_chain`; 0 if there is no draft loop."""
        return 0 if self.chain is None else self.chain.max_rows

    @property
    def max_new_rows(self) -> int:
        """Maximum number of new rows for `draft_after`; 0 if it must not be called."""
        return 0 if self.chain is None else self.chain.max_new_rows

    @in_inference_mode
    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows, then draft as `draft_chain` does from each request's last row, in one compiled call.

        Args:
            rows: the new rows, at most `max_new_rows` in total.
            work: what to draft.
        """
        assert isinstance(self.chain, HostChain)
        return self.chain.draft_after(rows, work)

    def make_graphs(self, run: RunPass) -> PassGraphs | None:
        """Return a `PassGraphs` bound to the current cache; None if passes are not recorded.

        Args:
            run: runs a pass eagerly.
        """
        backend = self._recordable()
        return None if backend is None else PassGraphs(run, *backend, self.max_context, self.rounding)

    def make_chain_graphs(self, run: RunPass, max_positions: int) -> ChainGraphs | None:
        """Return a `ChainGraphs` bound to the current cache; None if draft loops are not recorded.

        Args:
            run: see `make_graphs`.
            max_positions: number of positions the model may be run at.
        """
        backend = self._recordable()
        return None if backend is None else ChainGraphs(run, *backend, self.max_context, max_positions)

    def _recordable(self) -> tuple[Recorder, PagedBackend] | None:
        """Return the recorder and the backend to record with; None if passes cannot be recorded."""
        if self._recorder is None or not isinstance(self.backend, PagedBackend):
            return None
        if any(shape.dtype not in self.backend.dtypes for shape in self.cache.shapes.values()):
            return None
        return self._recorder, self.backend

    def make_cache(self, num_slots: int) -> KVCache:
        """Return a cache for `num_slots` tokens, without layers."""
        return KVCache(num_slots, self.device)

    def allocate(self, num_slots: int) -> None:
        """Allocate the cache for `num_slots` tokens."""
        shapes = self.cache.shapes
        self.cache = self.make_cache(num_slots)
        for layer, shape in shapes.items():
            self.cache.allocate(layer, shape)
        self.backend = self._make_backend(self.cache, self.max_context)
