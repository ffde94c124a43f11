"""Packages with the published method names, and checkpoints that look like theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
from safetensors.torch import save_file

from specdec.registry import known_methods

METHODS = """
from typing import ClassVar, Literal
from pydantic import Field
from specdec import Capability, Draft, Proposer, ProposerConfig, hookimpl

class Base(Proposer):
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

class NgramConfig(ProposerConfig):
    prompt_lookup_min: int | None = Field(None, ge=1)
    prompt_lookup_max: int | None = Field(None, ge=1)

class SuffixConfig(ProposerConfig):
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = Field(0.1, ge=0, le=1)

class ModelConfig(ProposerConfig):
    model: str
    parallel_drafting: bool = False

class DraftModelConfig(ModelConfig):
    use_heterogeneous_vocab: bool = False

def make(name, config, *capabilities):
    return type(name, (Base,), {"name": name, "Config": config, "capabilities": frozenset(capabilities)})

MODEL = (Capability.OWN_KV, Capability.DRAFT_PROBS)
CLASSES = [
    make("ngram", NgramConfig),
    make("suffix", SuffixConfig),
    make("draft_model", DraftModelConfig, *MODEL),
    make("eagle", ModelConfig, *MODEL),
    make("eagle3", ModelConfig, *MODEL),
    make("mlp_speculator", ModelConfig, Capability.HIDDEN_STATES, Capability.DRAFT_PROBS),
    make("mtp", ProposerConfig, *MODEL),
]

@hookimpl
def specdec_register_proposers():
    return CLASSES
"""
NAMES = ("ngram", "suffix", "draft_model", "eagle", "eagle3", "mlp_speculator", "mtp")

SAMPLERS = """
from specdec import Capability, Sampler, SamplerConfig, hookimpl

class Base(Sampler):
    is_lossless = True
    def verify(self, scores, batch): ...

class UsesQ(Base):
    name = "uses_q"
    capabilities = frozenset({Capability.DRAFT_PROBS})

class ByRateConfig(SamplerConfig):
    num_speculative_tokens: int
    rates: tuple[float, ...]

class ByRate(Base):
    name = "by_rate"
    is_lossless = False
    Config = ByRateConfig

class ThresholdConfig(SamplerConfig):
    posterior_threshold: float = 0.09

class Threshold(Base):
    name = "threshold"
    is_lossless = False
    Config = ThresholdConfig

@hookimpl
def specdec_register_samplers():
    return [UsesQ, ByRate, Threshold]
"""


class MakeCheckpoint(Protocol):
    """Writes a checkpoint and returns its directory."""

    def __call__(self, name: str, config: Mapping[str, Any], tensors: Iterable[str] = ()) -> str: ...


@pytest.fixture
def plugins(site: Any) -> None:
    """Stand-ins for the published methods, and samplers of all kinds."""
    packages: dict[str, dict[str, str]] = {}
    for name in NAMES:
        known = known_methods()[name]
        assert known.distribution is not None
        packages.setdefault(known.distribution, {})[name] = "fake_methods"
    for distribution, entry_points in packages.items():
        # Found first, so it stands in for a real package of the same name.
        site.install(distribution, {"proposers": entry_points}, {"fake_methods": METHODS})
    samplers = dict.fromkeys(("uses_q", "by_rate", "threshold"), "fake_samplers")
    site.install("fake-samplers", {"samplers": samplers}, {"fake_samplers": SAMPLERS})


@pytest.fixture
def checkpoint(tmp_path: Path) -> MakeCheckpoint:
    """Write a `config.json` and, for its names only, tensors of one element."""

    def make(name: str, config: Mapping[str, Any], tensors: Iterable[str] = ()) -> str:
        directory = tmp_path / "checkpoints" / name
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(json.dumps(config))
        if names := list(tensors):
            save_file({n: torch.zeros(1) for n in names}, directory / "model.safetensors")
        return str(directory)

    return make
