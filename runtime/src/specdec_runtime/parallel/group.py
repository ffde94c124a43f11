"""The group of processes that share one model, and the messages between them."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from specdec import ConfigError, EngineError, ModelError
from specdec_runtime.parallel.messages import Command, Event, RaisedError, decode, encode
from specdec_runtime.parallel.rank import TIMEOUT_VARIABLE, ProcessRank, process_rank, timeout_s

logger = logging.getLogger("specdec")

_FRAME_BYTES = 4096
"""Bytes of one broadcast; a longer message needs a second one."""
_HEADER_BYTES = 8
_IDLE = timedelta(days=365)
"""How long the other ranks wait for rank 0 between passes, while its caller is idle; they notice its end at once."""
_REASON_KEY = "specdec/failure"
_NUM_LOOKS, _BETWEEN_LOOKS_S = 2, 0.05
"""A failing rank publishes its reason before it leaves. Others look for it only briefly, because torchrun ends them too."""


class RankGroup:
    """All ranks of a job. Use `join_ranks` to get this process's group.

    Collectives of a pass use the default process group of `torch.distributed`; messages use a separate group on the host.

    Args:
        place: the rank of this process.
        device_type: type of the devices that the model runs on.

    Raises:
        EngineError: if the other ranks do not join.
    """

    def __init__(self, place: ProcessRank, device_type: str) -> None:
        self.rank, self.size, self.local_rank = place.rank, place.size, place.local_rank
        self._num_engines = 0
        self._limit = timedelta(seconds=timeout_s())
        self._store: Store | None = None
        self._end: EngineError | None = None
        try:
            if not dist.is_initialized():
                store, rank, size = next(rendezvous("env://", timeout=self._limit))
                dist.init_process_group(
                    dist.get_default_backend_for_device(device_type),
                    store=PrefixStore("specdec", store),
                    rank=rank,
                    world_size=size,
                    timeout=self._limit,
                )
                self._store = store
                atexit.register(self.close)
            elif dist.get_world_size() != place.size:
                raise ConfigError(
                    f"LLM: tensor_parallel_size={place.size} does not fit the process group of {dist.get_world_size()} ranks "
                    "that this process has made: the model is split over all of them"
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

    def new_engine(self) -> int:
        """Return the number of the next engine, which every rank makes at the same time."""
        self._num_engines += 1
        return self._num_engines

    def send(self, message: Command | Event | RaisedError) -> None:
        """Send a message to the other ranks; rank 0 only.

        Raises:
            EngineError: if one of them has ended or does not receive within the time limit.
        """
        data = encode(message)
        inline = _FRAME_BYTES - _HEADER_BYTES
        frame = torch.zeros(_FRAME_BYTES, dtype=torch.uint8)
        head = len(data).to_bytes(_HEADER_BYTES, "little") + data[:inline]
        frame[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        with self.together():
            self._broadcast(frame, self._limit)
            if len(data) > inline:
                self._broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), self._limit)

    def receive(self, *, is_limited: bool = False) -> Command | Event | RaisedError:
        """Wait for rank 0's next message.

        Args:
            is_limited: whether the time limit applies; otherwise rank 0's caller may be busy with other things.

        Raises:
            EngineError: if rank 0 has ended, or sends nothing in time.
        """
        frame = torch.empty(_FRAME_BYTES, dtype=torch.uint8)
        with self.together():
            self._broadcast(frame, self._limit if is_limited else _IDLE)
            head = frame.numpy().tobytes()
            length = int.from_bytes(head[:_HEADER_BYTES], "little")
            if length <= _FRAME_BYTES - _HEADER_BYTES:
                return decode(head[_HEADER_BYTES : _HEADER_BYTES + length])
            rest = torch.empty(length, dtype=torch.uint8)
            self._broadcast(rest, self._limit)
            return decode(rest.numpy().tobytes())

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

    @contextmanager
    def leading(self, engine: int) -> Iterator[None]:
        """Context for a call of rank 0's caller; its exceptions are raised on all ranks, unless the group has failed."""
        try:
            yield
        except BaseException as error:
            if self._end is None:
                self.send(RaisedError(engine, error))
            raise

    @property
    def is_over(self) -> bool:
        """Whether the group has failed."""
        return self._end is not None

    def close(self) -> None:
        """Leave the group; ranks that still wait notice it."""
        if dist.is_initialized():
            with suppress(Exception):  # nothing can be done about it any more
                dist.destroy_process_group()

    def fail(self, error: BaseException) -> EngineError:
        """End this rank because of its own error, publish the reason to the others, and return the error to raise."""
        own = f"rank {self.rank}: {type(error).__name__}: {_first_line(error)}"
        if self._store is not None:
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
        if self._store is None:
            return None
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


def join_ranks(size: int, device_type: str) -> RankGroup:
    """Return the group of this process, which is made on first use.

    Raises:
        ConfigError: if `torchrun` has not started `size` processes.
        EngineError: if the other ranks do not join.
    """
    global _group
    place = process_rank(size)
    if _group is None:
        _group = RankGroup(place, device_type)
    return _group


_group: RankGroup | None = None


def _is_of_collectives(error: BaseException) -> bool:
    """Return whether an exception means that another rank is gone, rather than a failure of this rank."""
    text = str(error).lower()
    words = ("gloo", "nccl", "timed out", "connection closed", "connection reset", "broken pipe")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(w in text for w in words)
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
