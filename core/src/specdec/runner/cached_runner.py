"""What every runner has: a cache and the attention over it."""

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
        device: where they are.
        max_context: the longest sequence, in tokens.
        make_backend: makes the attention backend of a cache; None takes torch's attention.
        recorder: records passes for the device to repeat; None has the host name every operation.
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
        """What runs through its own forward although a faster form was asked for: a model, or stages of a head."""
        self.rounding = 0.0
        """Relative distance of the model's own logits from those in wider arithmetic, where it was measured."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of cache that one token takes over all layers."""
        return self.cache.bytes_per_token

    @property
    def num_recorded(self) -> int:
        """How many sets of recorded passes it has."""
        return 0 if self._recorder is None else 1

    @property
    def recorded(self) -> list[PassGraphs | ChainGraphs]:
        """What replays its passes and loops; empty where nothing is recorded."""
        return []

    @property
    def chain(self) -> Chain | None:
        """The draft loop of what runs here: compiled on the host, recorded on a device; None where it has none."""
        return None

    @property
    def max_chain_rows(self) -> int:
        """The most rows that `draft_chain` takes here; 0 where there is no such loop."""
        return 0 if self.chain is None else self.chain.max_rows

    @property
    def max_new_rows(self) -> int:
        """The most new rows that `draft_after` takes here; 0 where it is not to be called."""
        return 0 if self.chain is None else self.chain.max_new_rows

    @in_inference_mode
    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Take in new rows, and then do what `draft_chain` does from each request's last one, all in one compiled call.

        Args:
            rows: what is new, no more than `max_new_rows` rows in all.
            work: what to draft.
        """
        assert isinstance(self.chain, HostChain)
        return self.chain.draft_after(rows, work)

    def make_graphs(self, run: RunPass) -> PassGraphs | None:
        """Return what replays passes on the cache as it is now; None where nothing is recorded.

        Args:
            run: runs a pass operation by operation.
        """
        backend = self._recordable()
        return None if backend is None else PassGraphs(run, *backend, self.max_context, self.rounding)

    def make_chain_graphs(self, run: RunPass, max_positions: int) -> ChainGraphs | None:
        """Return what drafts on the cache as it is now in recorded loops; None where nothing is recorded.

        Args:
            run: see `make_graphs`.
            max_positions: how many positions it may be run at.
        """
        backend = self._recordable()
        return None if backend is None else ChainGraphs(run, *backend, self.max_context, max_positions)

    def _recordable(self) -> tuple[Recorder, PagedBackend] | None:
        """Return what passes are recorded with; None where they are not."""
        if self._recorder is None or not isinstance(self.backend, PagedBackend):
            return None
        if any(shape.dtype not in self.backend.dtypes for shape in self.cache.shapes.values()):
            return None
        return self._recorder, self.backend

    def make_cache(self, num_slots: int) -> KVCache:
        """Return a cache for `num_slots` tokens, with no layer in it yet."""
        return KVCache(num_slots, self.device)

    def allocate(self, num_slots: int) -> None:
        """Make the cache for `num_slots` tokens."""
        shapes = self.cache.shapes
        self.cache = self.make_cache(num_slots)
        for layer, shape in shapes.items():
            self.cache.allocate(layer, shape)
        self.backend = self._make_backend(self.cache, self.max_context)
