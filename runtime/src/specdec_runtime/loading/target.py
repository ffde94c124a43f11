"""Loads the target from the zoo, a directory, a hub, or an object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
import transformers  # its Auto classes take half a second when one is used: plugins are listed without
from transformers import PreTrainedTokenizerBase

from specdec import EngineOptions
from specdec.config import (
    Checkpoint,
    TargetFacts,
    facts_in,
    locate,
    read_mapping_of,
    resolve_name,
)
from specdec.errors import ConfigError, ModelError
from specdec_runtime.loading.admission import check_config, check_model, check_rope
from specdec_runtime.loading.causal import first_line, load_checkpoint, offline_arguments
from specdec_runtime.loading.text_part import is_multimodal, text_part
from specdec_runtime.models.spread import input_device, places

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TargetLocation(Protocol):
    """Location, device and dtype of a target in any host, as needed to load its proposer's models."""

    @property
    def model(self) -> PreTrainedModel | None:
        """The model, if it is a `transformers` model."""

    @property
    def path(self) -> str | None:
        """Directory or hub id."""

    @property
    def device(self) -> torch.device:
        """The device it runs on."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype it runs in."""

    @property
    def max_model_len(self) -> int:
        """Maximum context length, in tokens."""


@dataclass(frozen=True)
class LoadedTarget:
    """A target that passed admission. If passed as the `model` of several engines, they share it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    path: str | None
    device: torch.device
    dtype: torch.dtype
    max_model_len: int


def known_facts(options: EngineOptions) -> TargetFacts:
    """Return the facts about a target before any weight is loaded; few of a hub id, which is not looked up."""
    from transformers import PreTrainedModel  # takes seconds, and plugins are listed without it

    config: dict[str, Any] = {}
    model = None
    if isinstance(options.model, LoadedTarget):
        config, model = options.model.model.config.to_dict(), options.model.path
    elif isinstance(options.model, PreTrainedModel):
        config = options.model.config.to_dict()
    elif isinstance(options.model, str):
        model = options.model
        checkpoint = Checkpoint(model)
        if checkpoint.is_directory:
            config = dict(checkpoint.config or {})
    return facts_in(
        config,
        options.max_model_len,
        model=model,
        tensor_parallel_size=options.tensor_parallel_size,
        dtype=str(options.model.dtype if isinstance(options.model, LoadedTarget) else options.dtype),
    )


def load_target(options: EngineOptions) -> LoadedTarget:
    """Load the target and its tokenizer; a target that is already loaded is used as it is.

    Raises:
        ModelError: if the model cannot be served correctly.
        ConfigError: if an argument does not fit the model.
    """
    from transformers import PreTrainedModel  # takes seconds, and plugins are listed without it

    if isinstance(options.model, LoadedTarget):
        return replace(options.model, max_model_len=_max_model_len(options.model.model, options))
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if isinstance(options.model, PreTrainedModel):
        model, path = options.model.eval(), None
        name = type(model).__name__
        check_config(model.config, name)
        if is_multimodal(model.config):
            model = text_part(model, name)
        check_model(model, name)
        device = next(model.parameters()).device
        _check_place(options, device, model.dtype)
    elif isinstance(options.model, str | Path):
        options = locate(options)
        name = path = options.model
        model = load_checkpoint(path, options, device)
    else:
        raise ConfigError(
            f"LLM: model must be a path, a hub id or a PreTrainedModel, not {type(options.model).__name__}"
        )
    max_model_len = _max_model_len(model, options)
    check_rope(model.config, max_model_len, name)
    if places(model) or options.device_map is not None:
        device = input_device(model)
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    return LoadedTarget(model, _tokenizer(options, path), path, device, dtype, max_model_len)


def _check_place(options: EngineOptions, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a device that a loaded model is not on, and a dtype that it does not have: it stays as it is.

    Raises:
        ConfigError: naming both.
    """
    wanted, own = options.device, str(dtype).removeprefix("torch.")
    if str(options.dtype).removeprefix("torch.") not in ("auto", own):
        raise ConfigError(
            f"LLM: dtype={options.dtype!r}, and the model that was given has {own}: convert it with model.to(DTYPE), or "
            "leave dtype out"
        )
    asked = device if wanted is None else torch.device(wanted)
    if asked.type != device.type or asked.index not in (None, device.index):
        raise ConfigError(
            f"LLM: device={wanted!r}, and the model that was given is on {str(device)!r}: move it with "
            f"model.to({wanted!r}), or leave device out"
        )


def end_of_text_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> tuple[int, ...]:
    """Return the end-of-text ids: the generation configuration's, else the model's, else the tokenizer's."""
    generation = getattr(model, "generation_config", None)
    for source in (generation, model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if isinstance(value, int):
            return (value,)
        if value:
            return tuple(value)
    return ()


def _max_model_len(model: PreTrainedModel, options: EngineOptions) -> int:
    trained = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if options.max_model_len is None:
        return int(trained or 2048)
    if trained is not None and options.max_model_len > trained:
        raise ConfigError(
            f"LLM: max_model_len={options.max_model_len} is longer than the model's {trained} positions; pass {trained} or less"
        )
    return options.max_model_len


def _tokenizer(options: EngineOptions, path: str | None) -> PreTrainedTokenizerBase | None:
    if isinstance(options.tokenizer, PreTrainedTokenizerBase):
        return options.tokenizer
    source = options.tokenizer or path
    if options.skip_tokenizer_init or source is None:
        return None
    name = resolve_name(str(source), dtype=options.dtype)
    revision = options.revision if options.tokenizer is None else None
    checkpoint = Checkpoint(name, revision)
    try:
        checkpoint.check_names()
        tokenizer: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(
            name, trust_remote_code=options.trust_remote_code, revision=revision, **offline_arguments(name)
        )
    except Exception as error:  # `tokenizers` raises Exception itself for a damaged file
        raise ModelError(
            f"no tokenizer in {source!r}: {first_line(error)}; pass tokenizer=, or skip_tokenizer_init=True and token ids"
        ) from error
    if tokenizer.chat_template is None:  # processors of multimodal models had a file of their own for it
        kept = checkpoint.file("chat_template.json")
        tokenizer.chat_template = None if kept is None else read_mapping_of(kept).get("chat_template")
    return tokenizer
