"""Engines of the stub, with and without a proposer."""

from __future__ import annotations

from typing import Any

import torch
from stub_engine import HIDDEN, MAX_LEN, VOCAB, StubParams, StubRunner

from specdec_hosting import HostTarget, open_proposer, resolve_for_host
from specdec_vllm.binding import Binding
from specdec_vllm.requests import Requests
from specdec_vllm.verifier import Verifier
from specdec_vllm.workers.bound import SAMPLERS

PROMPTS = [[5, 9], [3, 3, 7, 1, 8, 20, 31, 2, 6], list(range(1, 24)), [11] * 5]


def target() -> HostTarget:
    """Return the stub's target."""
    return HostTarget(
        vocab_size=VOCAB,
        max_model_len=MAX_LEN,
        hidden_size=HIDDEN,
        num_layers=3,
        max_num_seqs=8,
        has_hidden_states=True,
        has_aux_hidden_states=True,
    )


def bound(
    config: dict[str, Any], *, is_drafting: bool = True, **arguments: Any
) -> tuple[StubRunner, Binding]:
    """Return a runner with a proposer in it."""
    runner = StubRunner(**arguments)
    speculation = resolve_for_host(
        {"num_speculative_tokens": 4} | config, target(), host="vLLM", samplers=SAMPLERS
    )
    hosted = None
    if is_drafting:
        hosted = open_proposer(speculation, target(), host="vLLM", samplers=SAMPLERS)
    sampler = speculation.sampler_class(speculation.sampler_config)
    requests = Requests(0, "seeded" if sampler.name == "strict" else "none")
    verifier = Verifier(runner.rejection_sampler, runner, requests, sampler)
    aux_layer_ids = () if hosted is None else hosted.aux_layer_ids
    binding = Binding(runner, requests, hosted, verifier, aux_layer_ids)
    binding.attach()
    return runner, binding


def proposer_of(binding: Binding) -> Any:
    """Return the proposer inside."""
    assert binding._hosted is not None
    return binding._hosted.proposer


def add_all(runner: StubRunner, temperature: float = 0.0, *, is_seeded: bool = True, **keys: Any) -> None:
    """Add every prompt, each with a seed of its own."""
    for index, prompt in enumerate(PROMPTS):
        seed = 100 + index if is_seeded else None
        runner.add(f"r{index}", prompt, StubParams(temperature=temperature, seed=seed, **keys))


def stock_texts(temperature: float = 0.0, **keys: Any) -> dict[str, list[int]]:
    """Return what the stub says without drafts."""
    runner = StubRunner(**({"piece": keys.pop("piece")} if "piece" in keys else {}))
    add_all(runner, temperature, **keys)
    return runner.run()


def known(texts: dict[str, list[int]], name: str = "ChainRecorder", **keys: Any) -> dict[str, Any]:
    """Return the configuration of a proposer that knows these texts."""
    return {"method": f"speccheck.hosting.{name}", "texts": tuple(map(tuple, texts.values()))} | keys


def counted(binding: Binding, name: str) -> int:
    """Return one counter, of ours or of vLLM's names."""
    assert binding._hosted is not None
    counters = binding._hosted.counters()
    value = counters.get(f"specdec:{name}", counters.get(f"vllm:spec_decode_{name}"))
    assert isinstance(value, int)
    return value


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the total variation between two histograms."""
    return float((a / a.sum() - b / b.sum()).abs().sum() / 2)
