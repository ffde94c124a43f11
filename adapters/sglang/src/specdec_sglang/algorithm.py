"""The speculative algorithm that SGLang's scheduler and model runner ask about drafts. Needs SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec_sglang.settings import read_settings, set_arguments

if TYPE_CHECKING:
    from specdec_sglang.worker import Worker

    class CustomSpecAlgo:
        """Stub of SGLang's class for type checking."""

    class FutureMap:
        """Likewise."""

        def __init__(self, *_: Any) -> None: ...

        def resolve_seq_lens_cpu(self, batch: Any, *args: Any, **kwargs: Any) -> None:
            """Likewise."""

else:
    from sglang.srt.managers.overlap_utils import FutureMap
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo


class Algorithm(CustomSpecAlgo):
    """An algorithm whose worker is one for n-grams to SGLang: drafts of fixed width from the host, chains or trees."""

    worker: Worker | None = None
    """Of this process, once it is made."""

    def is_ngram(self) -> bool:
        """Return that relayed tokens, buffers of masks and graphs are those of n-grams."""
        return True

    def has_draft_kv(self) -> bool:
        """Return that the target's cache holds nothing of a draft model."""
        return False

    # SGLang 0.5.23 calls these three on any algorithm, and its base class lacks them.

    def carries_draft_hidden_states(self) -> bool:
        """Return that none are sent from prefill to decode instances."""
        return False

    def need_topk(self) -> bool:
        """Return that no draft probabilities are relayed."""
        return False

    def create_future_map(
        self, device: Any, pool: Any, needs_cpu_seq_lens: bool = True, needs_confidence_relay: bool = False
    ) -> FutureMap:
        """Return the relay between steps, which asks for late drafts before it waits for the device."""
        return DraftingFutureMap(device, self, pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        """Set SGLang's arguments; what is assigned to the stand-in that it passes counts."""
        set_arguments(server_args, read_settings())


class DraftingFutureMap(FutureMap):
    """SGLang's relay of the tokens of a step to the next one."""

    def __init__(self, device: Any, algorithm: Algorithm, *others: Any) -> None:
        super().__init__(device, algorithm, *others)
        self._algorithm = algorithm

    def resolve_seq_lens_cpu(self, batch: Any, *args: Any, **kwargs: Any) -> None:
        """Draft late for a batch, while the device runs the step before; then wait for the lengths after that step."""
        if self._algorithm.worker is not None:
            self._algorithm.worker.draft_late(batch)
        super().resolve_seq_lens_cpu(batch, *args, **kwargs)
