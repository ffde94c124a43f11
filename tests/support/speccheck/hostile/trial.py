"""Tries hostile proposers one after another and prints what came of each; run as a program, which may die of one."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from speccheck.engines import greedy, letter_tokenizer, scripted
from speccheck.hostile import done, returned
from speccheck.hostile.returned import Kind
from speccheck.models import MAX_LEN, copied, prompts, tiny
from speccheck.proposers import ScriptConfig, Scripted
from specdec import LLM, AsyncLLM, FinishReason, SamplingParams
from specdec.interfaces import (
    Capability,
    Draft,
    ProposeBatch,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
    TokenIds,
)

END = 127


@dataclass(frozen=True)
class Case:
    """One hostile proposer."""

    kind: str
    group: str
    place: str = "propose"
    """Where it does it: `__init__`, `load`, `propose`, `finish`, `resume` or `observer`."""
    sampler: str = "strict"
    counted: str | None = None
    """The metric that counts it."""
    is_async: bool | None = None
    """Only under `AsyncLLM`, only under `LLM`, or None for both."""

    def __str__(self) -> str:
        sampler = "" if self.sampler == "strict" else f", {self.sampler}"
        return f"{self.kind} ({self.place}{sampler})"


def cases() -> Iterator[Case]:
    """Yield every case."""
    errors, cut = "specdec:proposer_errors", "specdec:proposer_nodes_cut"
    for group, kinds, counted in (
        ("ERRORS", returned.ERRORS, errors),
        ("CUT", returned.CUT, cut),
        ("HARMLESS", returned.HARMLESS, None),
    ):
        for kind in kinds:
            yield Case(kind, group, counted=counted)
            if any(word in kind.split() for word in ("q", "flags", "map", "has_probs")):
                yield Case(kind, group, sampler="probabilistic", counted=counted)
    yield Case("KeyboardInterrupt", "RAISED", counted=errors, is_async=True)
    for group, kinds, places in (
        ("RAISED", done.RAISED, ("finish", "resume", "observer")),
        ("SETTINGS", done.SETTINGS, ("__init__", "load", "finish", "observer")),
    ):
        for kind in kinds:
            for place in ("propose", *(places if kind in done.EVERYWHERE else ())):
                is_async = False if "signal" in kind else None
                counted = "specdec:observer_errors" if place == "observer" else errors
                if kind == "numpy errors raised":
                    counted = None  # no step depends on it
                yield Case(kind, group, place, counted=counted, is_async=is_async)
    for group in ("WRITES", "STATES", "MISUSE"):
        for kind in getattr(done, group):
            yield Case(kind, group)


class HostileConfig(ScriptConfig):
    """What a proposer does, and where."""

    kind: str
    group: str
    place: str


class Hostile(Scripted):
    """Drafts what is right, and in every second call does something else."""

    name: ClassVar[str] = "hostile"
    Config: ClassVar[type[ProposerConfig]] = HostileConfig
    capabilities = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, HostileConfig)
        self.hostile = config
        self.capabilities = self.capabilities - {Capability.DRAFT_PROBS if self.is_tree else Capability.TREE}
        self.act("__init__")

    @property
    def is_tree(self) -> bool:
        """Whether this configuration drafts trees."""
        return "parents" in self.hostile.kind

    def load(self, target: TargetHandle) -> None:
        self.act("load")

    def propose(self, batch: ProposeBatch) -> Draft:
        draft = super().propose(batch)
        if self.num_calls % 2:
            return draft
        group, kind = self.hostile.group, self.hostile.kind
        self.act("propose")
        if group in ("RAISED", "SETTINGS"):
            return draft
        does: Kind = getattr(returned if hasattr(returned, group) else done, group)[kind]
        if hasattr(done, group):
            does = done.returning(does)  # type: ignore[arg-type]
        return does(self, draft, batch)  # type: ignore[return-value]  # that is the point

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        self.act("finish")

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        if self.hostile.group == "WRITES":
            done._zero(token_ids)
        self.act("resume")
        return 0

    def act(self, place: str) -> None:
        """Do what is configured for a place."""
        if self.hostile.place == place and self.hostile.group in ("RAISED", "SETTINGS"):
            if self.hostile.kind == "KeyboardInterrupt":
                raise KeyboardInterrupt
            getattr(done, self.hostile.group)[self.hostile.kind]()


class HostileReader(Hostile):
    """The same, with hidden states."""

    name: ClassVar[str] = "hostile_reader"
    capabilities = frozenset(
        {Capability.TREE, Capability.DRAFT_PROBS, Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}
    )
    aux_layer_ids = (1, 2)


@dataclass
class Result:
    """What came of one case under one interface."""

    case: str
    is_async: bool
    problem: str | None
    """None if all is as it should be."""


class Bench:
    """The target, its requests, and what they give without speculation."""

    def __init__(self) -> None:
        self.model = tiny("llama")
        self.model.generation_config.eos_token_id = END
        self.tokenizer = letter_tokenizer()
        self.prompts = [*prompts([33, 9, 37], seed=11), prompts([33], seed=11)[0]]
        self.params = [
            greedy(10),
            SamplingParams(temperature=0.8, seed=7, max_tokens=10, ignore_eos=True),
            greedy(
                10, repetition_penalty=1.3, logit_bias={5: 2.0, 9: -100.0}, stop_token_ids=[3], min_tokens=9
            ),
            SamplingParams(
                temperature=0.7, seed=3, max_tokens=10, structured_outputs={"regex": "((bb|bc|bd|cb)+,?)+"}
            ),
        ]
        plain = LLM(copied(self.model), **self.arguments)
        self.wanted = self._ids(plain.generate(self.prompts, self.params))
        """Of every request; the last one follows a grammar, which takes a process to compile."""
        self.texts = [[*p, *w] for p, w in zip(self.prompts, self.wanted, strict=True)]

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of every engine."""
        return {"max_model_len": MAX_LEN, "max_num_seqs": 8, "tokenizer": self.tokenizer, "block_size": 4}

    def try_case(self, case: Case, *, is_async: bool) -> str | None:
        """Return what is wrong, or None."""
        count = len(self.prompts) - (case.group != "MISUSE")
        before = _surroundings()
        name = "HostileReader" if case.group == "STATES" else "Hostile"
        keys: dict[str, Any] = {"kind": case.kind, "group": case.group, "place": case.place}
        speculation = scripted(name, 3, texts=self.texts, rejection_sample_method=case.sampler, **keys)
        speculation["method"] = f"speccheck.hostile.trial.{name}"
        speculation["adaptive"] = False
        make = AsyncLLM if is_async else LLM
        llm = make(copied(self.model), speculative_config=speculation, **self.arguments)
        try:
            for _ in range(2):  # the second time on what the first has left, the prefix cache included
                got = (
                    asyncio.run(self._stream(llm, count))
                    if is_async
                    else self._ids(llm.generate(self.prompts[:count], self.params[:count]))
                )
                exact = [i for i in range(count) if case.sampler == "strict" or self.params[i].is_greedy]
                if any(got[i] != self.wanted[i] for i in exact):
                    return f"gave {got}, not {self.wanted[:count]}"
            counters = {metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}
            if case.counted is not None and not counters[case.counted]:
                return f"{case.counted} is 0"
            if not counters["vllm:spec_decode_num_accepted_tokens"]:
                return "nothing was accepted: the proposer was not at work"
        finally:
            if is_async:
                llm.shutdown()
        after = _surroundings()
        return None if before == after else f"left {after}, not {before}"

    async def _stream(self, llm: AsyncLLM, count: int) -> list[list[int]]:
        async def last(index: int) -> list[int]:
            ids: list[int] = []
            async for output in llm.generate(self.prompts[index], self.params[index]):
                ids = output.outputs[0].token_ids
            return ids

        return await asyncio.gather(*(last(index) for index in range(count)))

    def _ids(self, outputs: Sequence[Any]) -> list[list[int]]:
        return [output.outputs[0].token_ids for output in outputs]


def _surroundings() -> tuple[str, ...]:
    """Return what torch does by default."""
    made = torch.ones(2)
    return (
        str(made.device), str(made.dtype), str(made.requires_grad), str(torch.is_grad_enabled()),
        str(torch.get_num_threads()), str((made[None] @ made[:, None]).dtype),
    )  # fmt: skip


OBSERVER = """
from specdec import hookimpl
from speccheck.hostile import done

@hookimpl
def specdec_step_finished(stats):
    done.{group}[{kind!r}]()

@hookimpl
def specdec_request_finished(stats):
    done.{group}[{kind!r}]()
"""


class Installed:
    """Installs a hostile observer for a while."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> None:
        from specdec import registry

        path = Path(self._folder.name)
        info = path / "hostile_observer-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-observer\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[specdec.observers]\nhostile = hostile_observer\n")
        (path / "hostile_observer.py").write_text(
            OBSERVER.format(group=self._case.group, kind=self._case.kind)
        )
        sys.path.insert(0, self._folder.name)
        registry.reset()

    def __exit__(self, *_: object) -> None:
        from specdec import registry

        sys.path.remove(self._folder.name)
        sys.modules.pop("hostile_observer", None)
        registry.reset()
        self._folder.cleanup()


def run(names: Sequence[str]) -> None:
    """Try the named cases; prints one line of JSON before and after each."""
    known = {str(case): case for case in cases()}
    bench = Bench()
    for name in names:
        case = known[name]
        for is_async in (False, True):
            if case.is_async not in (None, is_async):
                continue
            print(json.dumps(asdict(Result(name, is_async, "the process died"))), flush=True)
            try:
                if case.place == "observer":
                    with Installed(case):
                        problem = bench.try_case(case, is_async=is_async)
                else:
                    problem = bench.try_case(case, is_async=is_async)
            except BaseException as error:
                problem = f"raised {type(error).__name__}: {error!r:.300}"
                _reset()
            print(json.dumps(asdict(Result(name, is_async, problem))), flush=True)


def _reset() -> None:
    """Undo what a case has left, so that the next one is tried on its own."""
    import signal

    signal.setitimer(signal.ITIMER_REAL, 0.0)
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack():
        torch._C._pop_torch_dispatch_stack(None)


if __name__ == "__main__":
    run(json.loads(sys.stdin.read()))
