"""The group of processes that share one model, and the messages between them."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from specdec import ConfigError, EngineError, ModelError
from specdec_runtime.parallel.followers import TIMEOUT_VARIABLE, timeout_s
from specdec_runtime.parallel.messages import Command

logger = logging.getLogger("specdec")

_FRAME_BYTES = 4096
"""Bytes of one broadcast; a longer message needs a second one."""
_HEADER_BYTES = 8
_IDLE = timedelta(days=365)
"""How long the other ranks wait for rank 0 between passes, while its caller is idle; they notice its end at once."""
_REASON_KEY = "specdec/failure"
_NUM_LOOKS, _BETWEEN_LOOKS_S = 2, 0.05
"""A failing rank publishes its reason before it leaves. Others look for it only briefly."""


class RankGroup:
    """All ranks of an engine.

    Collectives of a pass use the default process group of `torch.distributed`; messages use a separate group on the host.

    Args:
        rank: of this process.
        size: number of ranks.
        device_type: type of the devices that the model runs on.
        store: in which they find each other.

    Raises:
        EngineError: if the other ranks do not join.
    """

    def __init__(self, rank: int, size: int, device_type: str, store: Store) -> None:
        self.rank, self.size = rank, size
        self._limit = timedelta(seconds=timeout_s())
        self._store = store
        self._end: EngineError | None = None
        try:
            dist.init_process_group(
                dist.get_default_backend_for_device(device_type),
                store=PrefixStore("specdec", store),
                rank=rank,
                world_size=size,
                timeout=self._limit,
            )
            self._channel = dist.new_group(backend="gloo", timeout=_IDLE)
        except RuntimeError as error:
            raise EngineError(
                f"tensor parallelism: rank {self.rank} of {self.size} did not find the others within "
                f"{self._limit.total_seconds():g} s: {_first_line(error)}"
            ) from error
        if not self.is_leader:
            logger.setLevel(logging.ERROR)  # only rank 0 logs notices

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def send(self, message: Command) -> None:
        """Send a message to the other ranks; rank 0 only.

        Raises:
            EngineError: if one of them has ended or does not receive within the time limit.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        inline = _FRAME_BYTES - _HEADER_BYTES
        frame = torch.zeros(_FRAME_BYTES, dtype=torch.uint8)
        head = len(data).to_bytes(_HEADER_BYTES, "little") + data[:inline]
        frame[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        with self.together():
            self._broadcast(frame, self._limit)
            if len(data) > inline:
                self._broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), self._limit)

    def receive(self) -> Command:
        """Wait for rank 0's next message, however long its caller is busy with other things.

        Raises:
            EngineError: if rank 0 has ended.
        """
        frame = torch.empty(_FRAME_BYTES, dtype=torch.uint8)
        with self.together():
            self._broadcast(frame, _IDLE)
            head = frame.numpy().tobytes()
            length = int.from_bytes(head[:_HEADER_BYTES], "little")
            data = head[_HEADER_BYTES : _HEADER_BYTES + length]
            if length > len(data):
                rest = torch.empty(length, dtype=torch.uint8)
                self._broadcast(rest, self._limit)
                data = rest.numpy().tobytes()
            command: Command = pickle.loads(data)  # the ranks of one engine trust each other
            return command

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context for operations that all ranks do together; if one rank fails there, all ranks end.

        Raises:
            EngineError: if another rank or an earlier call failed. `ConfigError` and `ModelError` of this rank are passed on.
        """
        if self._end is not None:
            raise EngineError(str(self._end))
        try:
            yield
        except EngineError:
            raise
        except Exception as error:
            if isinstance(error, ConfigError | ModelError):  # every rank finds the same error
                self.fail(error)
                raise
            raise self._ended_by(error) from error
        except BaseException as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """Leave the group; ranks that still wait notice it."""
        if dist.is_initialized():
            with suppress(Exception):  # nothing can be done about it any more
                dist.destroy_process_group()

    def fail(self, error: BaseException) -> EngineError:
        """End this rank because of its own error, publish the reason to the others, and return the error to raise."""
        own = f"rank {self.rank}: {type(error).__name__}: {_first_line(error)}"
        with suppress(Exception):  # the process that hosts the store may be gone
            self._store.set(_REASON_KEY, own)
        return self._over(f"tensor parallelism: {own}; all ranks end")

    def _ended_by(self, error: BaseException) -> EngineError:
        if not _is_of_collectives(error):
            return self.fail(error)
        is_late = "timed out" in str(error).lower()
        reason = None if is_late else self._reason()  # a hanging rank gives no reason, and may host the store
        if reason is not None:
            return self._over(f"tensor parallelism: {reason}; all ranks end")
        if "closed" in str(error).lower() or "reset" in str(error).lower():
            return self._over(
                f"tensor parallelism: another rank than rank {self.rank} has ended, or was killed; all ranks end"
            )
        return self._over(
            f"tensor parallelism: rank {self.rank} waited {self._limit.total_seconds():g} s for another rank, which does not "
            f"answer; all ranks end ({TIMEOUT_VARIABLE} sets the seconds; {_first_line(error)})"
        )

    def _over(self, text: str) -> EngineError:
        self._end = EngineError(text)
        self.close()
        return self._end

    def _reason(self) -> str | None:
        """Return why another rank failed, if it published a reason."""
        for _ in range(_NUM_LOOKS):
            try:
                if self._store.check([_REASON_KEY]):
                    return bytes(self._store.get(_REASON_KEY)).decode()
            except Exception:  # the process that hosts the store is gone
                return None
            time.sleep(_BETWEEN_LOOKS_S)
        return None

    def _broadcast(self, tensor: torch.Tensor, limit: timedelta) -> None:
        work = dist.broadcast(tensor, 0, group=self._channel, async_op=True)
        assert work is not None
        work.wait(limit)


def _is_of_collectives(error: BaseException) -> bool:
    """Return whether an exception means that another rank is gone, rather than a failure of this rank."""
    text = str(error).lower()
    words = ("gloo", "nccl", "timed out", "connection closed", "connection reset", "broken pipe")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(w in text for w in words)
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
