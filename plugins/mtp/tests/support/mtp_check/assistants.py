"""Tiny random Gemma 4 targets with assistants, written by the classes of `transformers`, which also are the reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

from specdec_runtime.models import cache_argument

VOCAB_SIZE, HIDDEN, WINDOW = 96, 32, 8
_LAYERS = ["sliding_attention", "full_attention"]
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "global_head_dim": 16, "sliding_window": WINDOW, "max_position_embeddings": 256, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
_TARGET = _COMMON | {"hidden_size": HIDDEN, "num_hidden_layers": 4, "layer_types": _LAYERS * 2}
_DENSE = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
_NO_TABLES = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
TARGETS: dict[str, PretrainedConfig] = {
    "dense": hf.Gemma4TextConfig(**_TARGET, **_DENSE, **_NO_TABLES),
    "shared": hf.Gemma4TextConfig(
        **_TARGET, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB_SIZE, num_kv_shared_layers=2
    ),
    "unified": hf.Gemma4UnifiedTextConfig(**_TARGET),
    "full": hf.Gemma4TextConfig(**_TARGET | {"layer_types": _LAYERS[1:] * 4}, **_NO_TABLES),
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Folders of a target and of its assistant."""

    target: Path
    assistant: Path


def make_pair(
    kind: str, folder: Path, *, is_ordered: bool = False, backbone_hidden_size: int = HIDDEN, **changed: Any
) -> Pair:
    """Write a target and its assistant, with keys of the assistant's layers changed."""
    torch.manual_seed(7)
    pair = Pair(folder / "target", folder / "assistant")
    config = TARGETS[kind]
    save(AutoModelForCausalLM.from_config(config), pair.target)
    own = _COMMON | {"hidden_size": 24, "num_hidden_layers": 3, "layer_types": [_LAYERS[0], *_LAYERS]}
    own |= _DENSE if kind == "dense" else {}
    own |= {} if kind == "unified" else _NO_TABLES
    of_all: Any = hf.Gemma4UnifiedAssistantConfig if kind == "unified" else hf.Gemma4AssistantConfig
    with all_shared():
        model = AutoModelForCausalLM.from_config(
            of_all(
                text_config=type(config)(**own | changed),
                backbone_hidden_size=backbone_hidden_size,
                use_ordered_embeddings=is_ordered,
                num_centroids=12,
                centroid_intermediate_top_k=3,
            )
        )
    save(model, pair.assistant)
    return pair


@torch.no_grad()
def save(model: PreTrainedModel, folder: Path) -> None:
    """Give every weight random values of a size at which logits are far apart, and write the model."""
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if "token_ordering" in name:
            weight.copy_(torch.randperm(len(weight)))
        elif weight.ndim == 1 and ("norm" in name or "scalar" in name):
            weight.copy_(1.0 + 0.2 * torch.randn(weight.shape))
        elif "embed" in name:
            weight.copy_(0.4 * torch.randn(weight.shape))
        elif weight.ndim == 2:
            weight.copy_(torch.randn(weight.shape) * weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)


@contextmanager
def all_shared() -> Iterator[None]:
    """Let `transformers` 5.23 make assistants: it takes layers that all are shared for a mistake."""
    kinds: list[Any] = [hf.Gemma4TextConfig, hf.Gemma4UnifiedTextConfig]
    own = [kind.__dict__.get("kv_sharing_modes") for kind in kinds]
    for kind, modes in zip(kinds, own, strict=True):
        if modes is not None:
            kind.kv_sharing_modes = property(lambda config: ["reuse"] * config.num_hidden_layers)
    try:
        yield
    finally:
        for kind, modes in zip(kinds, own, strict=True):
            if modes is not None:
                kind.kv_sharing_modes = modes


class PlainAssistant:
    """The two models, run by `transformers` alone; the target anew for every text that begins no earlier one."""

    def __init__(self, pair: Pair) -> None:
        known: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
        self.target: Any = AutoModelForCausalLM.from_pretrained(pair.target, **known).eval()
        with all_shared():
            self.assistant: Any = AutoModelForCausalLM.from_pretrained(pair.assistant, **known).eval()
        self._whole: list[int] = []

    def run_target(self, text: list[int]) -> SimpleNamespace:
        """Return what the target gives to its assistant once it has chosen the last token of a text."""
        count = len(text) - 1
        if self._whole[:count] != text[:-1]:
            self._run(text[:-1])
        rows = {
            kind: (layer.keys[:, :, :count], layer.values[:, :, :count]) for kind, layer in self._last.items()
        }
        return SimpleNamespace(hidden_states=(self._states[:, :count],), shared_kv_states=rows)

    @torch.no_grad()
    def _run(self, text: list[int]) -> None:
        config, cache = self.target.config, DynamicCache()
        kept = {cache_argument(self.target): cache}
        out = self.target(torch.tensor([text]), use_cache=True, output_hidden_states=True, **kept)
        with_own = config.layer_types[: len(config.layer_types) - config.num_kv_shared_layers]
        self._last = {kind: cache.layers[number] for number, kind in enumerate(with_own)}
        self._whole, self._states = text, out.hidden_states[-1]

    @torch.no_grad()
    def drafted_logits(self, text: list[int], drafted: list[int]) -> list[Tensor]:
        """Return the logits `[V]` that each drafted token is chosen from, for the committed tokens `text`."""
        given = self.run_target(text)
        state, logits = given.hidden_states[-1][:, -1:], list[Tensor]()
        for token in [text[-1], *drafted[:-1]]:
            embedded = self.target.get_input_embeddings()(torch.tensor([[token]]))
            out = self.assistant(
                inputs_embeds=torch.cat((embedded, state), -1),
                position_ids=torch.tensor([[len(text) - 1]]),
                shared_kv_states=given.shared_kv_states,
            )
            state = out.last_hidden_state
            logits.append(out.logits[0, -1])
        return logits

    def drafted_by_transformers(self, text: list[int], k: int) -> tuple[list[int], Tensor]:
        """Return the draft of its own generator of candidates, and its logits `[k, V]`."""
        self.assistant.generation_config.num_assistant_tokens = k
        config = hf.GenerationConfig(max_length=len(text) + k + 1)
        kind: Any = SinglePositionMultiTokenCandidateGenerator
        with warnings.catch_warnings():  # 5.19 wants what it does not read, and warns of it
            warnings.simplefilter("ignore", FutureWarning)
            generator = kind(
                assistant_model=self.assistant,
                target_model_input_embeddings=self.target.get_input_embeddings(),
                generation_config=config,
                input_ids=torch.tensor([text]),
                model_kwargs={},
            )
        ids, logits = generator.get_candidates(
            torch.tensor([text]), {}, self.run_target(text), is_first_iteration=False, n_last_matches=0
        )
        assert logits is not None
        return ids[0, len(text) :].tolist(), logits[0]
