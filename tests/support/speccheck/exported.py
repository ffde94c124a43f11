"""Heads as their exporters wrote them (`scripts/exporter_heads`), and a session that drafts a given path from each."""

from __future__ import annotations

import atexit
import json
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, LlamaConfig

from specdec import registry
from specdec.interfaces import FinishReason, PassMemory, ProposeBatch, Proposer, TargetHandle, TargetInfo
from specdec_runtime.drafting import Choice, DraftPosition
from specdec_runtime.runner import ModuleRunner
from specdec_testing.support.feed import Ask, Feed

ARCHIVE = Path(__file__).parents[2] / "exporters.tar.xz"


def unpacked() -> Path:
    """Return a folder with what the archive holds, which is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="exporters-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


FOLDER = unpacked()
PLAN: dict[str, Any] = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))
HEADS: dict[str, dict[str, Any]] = json.loads((FOLDER / "heads.json").read_text(encoding="utf-8"))
NUM_LAYERS, MAX_LEN, NUM_SLOTS = 8, 128, 512
CPU = torch.device("cpu")

Key = tuple[str, int, tuple[int, ...]]
"""A row of logits: the request, its length in tokens, and the drafted path behind it."""


@cache
def folder_of(name: str) -> str:
    """Return a head's folder with whole files: equal ones are links in the archive, and no checkpoint may have these."""
    return shutil.copytree(FOLDER / name, f"{tempfile.mkdtemp(prefix='exported-')}/head")


class StoredTarget:
    """The target that the heads were made for: its embedding, its output projection, and its states along two texts."""

    def __init__(self) -> None:
        tensors = load_file(FOLDER / "inputs.safetensors")
        embedding, lm_head = tensors["embedding"].float(), tensors["lm_head"].float()
        self._states = {tuple(text): tensors[name] for name, text in PLAN["texts"].items()}
        vocab, hidden = embedding.shape
        config = LlamaConfig(
            vocab_size=vocab, hidden_size=hidden, num_hidden_layers=NUM_LAYERS, num_attention_heads=2,
            max_position_embeddings=512,
        )  # fmt: skip
        linear = nn.Linear(hidden, vocab, bias=False)
        linear.weight = nn.Parameter(lm_head, requires_grad=False)
        self.handle = TargetHandle(
            info=TargetInfo(vocab, hidden, NUM_LAYERS, MAX_LEN, torch.float32, CPU, (), None),
            path=None,
            revision=None,
            config=config,
            embed_tokens=nn.Embedding.from_pretrained(embedding),
            lm_head=linear,
            checkpoint=None,
            tokenizer=None,
            pass_memory=PassMemory.on(CPU),
            runner_factory=_no_runner,
            model_loader=_no_model,
        )

    def states(self, tokens: Sequence[int], aux_layer_ids: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return the final state and the inputs of some layers along a text, each `[n, H]`; n is the last layer's output."""
        states = self._states[tuple(tokens)]
        return (states[NUM_LAYERS + 1], *(states[layer] for layer in aux_layer_ids))

    def states_before(self, tokens: Sequence[int], aux_layer_ids: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return the same for the position before each token; zeros before the first."""
        return tuple(
            torch.cat((state.new_zeros(1, state.shape[1]), state[:-1]))
            for state in self.states(tokens, aux_layer_ids)
        )


@cache
def target() -> StoredTarget:
    """Return the target of all heads."""
    return StoredTarget()


def load(name: str, *, is_fused: bool, config: dict[str, Any] | None = None, **keys: Any) -> Proposer:
    """Return the proposer of a head, its cache poisoned where nothing has been written.

    Args:
        name: the head, a folder of the fixtures.
        is_fused: whether compiled passes run.
        config: what the files leave open; None for the keys in `heads.json`.
        keys: further keys of `speculative_config`.
    """
    head = HEADS[name]
    open_keys = {key: value for key, value in head.items() if key not in ("method", "layers")}
    open_keys = open_keys if config is None else config
    kind = registry.proposer(head["method"])
    chosen = {"model": folder_of(name), "num_speculative_tokens": 3, "draft_sample_method": "greedy"}
    handle = target().handle
    if head["method"] == "mtp":  # its layers are of the target's family
        own = json.loads((FOLDER / name / "config.json").read_text(encoding="utf-8"))
        handle = replace(handle, config=AutoConfig.for_model(**own["transformer_layer_config"]))
    runners: list[ModuleRunner] = []
    handle = replace(handle, runner_factory=partial(_runner, runners, is_fused))
    proposer = kind(kind.Config(**chosen | open_keys | keys), handle.info)
    proposer.load(handle)
    for runner in runners:
        for tensors in (runner.cache.keys, runner.cache.values):
            for tensor in tensors.values():
                tensor.fill_(float("nan"))
    return proposer


def drafted(proposer: Proposer, *, confidences: bool = False) -> dict[Key, Tensor]:
    """Run the plan: chunks, partial acceptance, nothing new, delivery from the start and from inside, and an end.

    Returns:
        the logits from which each token was chosen, or the confidence in each; the tokens themselves are the plan's.
    """
    session = _Session(proposer)
    for step in PLAN["steps"]:
        session.step(step)
    return session.confidences if confidences else session.seen


def expected(name: str, tensor: str = "logits") -> dict[Key, Tensor]:
    """Return the exporter's logits of all rows."""
    logits = load_file(FOLDER / name / "expected.safetensors")[tensor]
    rows = [(request, length, tuple(path)) for request, length, path in PLAN["rows"]]
    return dict(zip(rows, logits, strict=True))


class _Session:
    """Two requests of one proposer, whose drafts are the plan's."""

    def __init__(self, proposer: Proposer) -> None:
        self.seen: dict[Key, Tensor] = {}
        self.confidences: dict[Key, Tensor] = {}
        self._feed = Feed(proposer, target())  # type: ignore[arg-type]  # it reads the handle and states
        self._feed.is_scribbling = True
        self._paths: dict[str, list[int]] = {}
        drafter: Any = getattr(proposer, "_drafter", None)
        self._chooser = proposer._chooser if drafter is None else drafter.chooser  # type: ignore[attr-defined]  # heads without a cache
        if getattr(drafter, "_loop", None) is not None:  # loops choose on their own
            drafter._loop.can_draft = lambda *arguments, **named: False
        self._chooser.choose = self._choose

    def step(self, step: dict[str, Any]) -> None:
        """Call the proposer once, or end a request."""
        if "finish" in step:
            self._feed.finish(step["finish"], FinishReason.ABORT)
            return
        for name in step.keys() - self._feed.requests.keys():
            text = PLAN["texts"][name]
            self._feed.add(name, text, len(text))
        self._paths = {name: ask.get("path", []) for name, ask in step.items()}
        asks = {
            name: Ask(ask["count"], len(self._paths[name]), ask.get("start")) for name, ask in step.items()
        }
        for name, row in self._feed.call(asks).items():
            assert list(row.tokens) == self._paths[name]
            length = self._feed.requests[name].delivered
            for depth, confidence in enumerate(row.confidence or ()):
                self.confidences[name, length, tuple(row.tokens[:depth])] = torch.tensor(confidence)

    def _choose(self, logits: Tensor, places: Sequence[DraftPosition], batch: ProposeBatch) -> Choice:
        wanted = []
        for row, place in zip(logits, places, strict=True):
            name = batch.request_ids[place.row]
            key = name, batch.num_tokens[place.row], place.path
            assert key not in self.seen or torch.allclose(self.seen[key], row, atol=1e-5)
            self.seen[key] = row.clone()
            wanted.append(self._paths[name][len(place.path)])
        indices = self._chooser._vocabulary.index_of(torch.tensor(wanted))
        none = torch.zeros(len(places), 1) if self._chooser._wants_confidence else None
        choice: Choice = self._chooser._choice(indices[:, None], [1] * len(places), None, None, none)
        return choice


def _runner(made: list[ModuleRunner], is_fused: bool, head: nn.Module) -> ModuleRunner:
    runner = ModuleRunner(head, CPU, MAX_LEN, is_fused=is_fused)
    runner.allocate(NUM_SLOTS)
    made.append(runner)
    return runner


def _no_runner(module: nn.Module) -> ModuleRunner:
    raise AssertionError("replaced by `load`")


def _no_model(path: str, **keys: Any) -> Any:
    raise AssertionError(f"heads load no model: {path}")
