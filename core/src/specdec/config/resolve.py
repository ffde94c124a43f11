"""Resolves `speculative_config` to proposer and sampler classes with a configuration for each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from specdec import registry
from specdec.config.checkpoint import Checkpoint
from specdec.config.compat import speculative_keys
from specdec.config.draft_rules import DraftFacts, check_draft, choose_ranks, choose_tokens
from specdec.config.inference import infer_method
from specdec.config.model_name import resolve_name
from specdec.config.notices import notice
from specdec.config.sampling_rules import choose_draft_sampling
from specdec.config.source import read_mapping
from specdec.config.speculative import PLACE, SpeculativeConfig, split
from specdec.config.zoo import ZOO
from specdec.errors import ConfigError, ModelError, PluginError
from specdec.messages import explain, unknown_key
from specdec.registry import Group
from specdec.registry.catalogue import known_method
from specdec.registry.class_path import is_class_path
from specdec.target_facts import TargetFacts

if TYPE_CHECKING:
    from specdec.interfaces import Proposer, ProposerConfig, Sampler, SamplerConfig
    from specdec.sampling_params import SamplingParams

Model = TypeVar("Model", bound=BaseModel)

_INHERITED = ("draft_sample_method", "max_model_len", "draft_tensor_parallel_size", "on_proposer_error")
"""Common keys that a nested configuration inherits from the outer one unless it sets them."""
DEFAULT_SAMPLER: str = SpeculativeConfig.model_fields["rejection_sample_method"].default


@dataclass(frozen=True)
class ResolvedSpeculation:
    """A fully resolved `speculative_config`."""

    config: SpeculativeConfig
    """The common keys; `method`, `num_speculative_tokens`, `draft_sample_method` and
    `draft_tensor_parallel_size` are set. `model` is a directory or hub id, or None for a draft without
    its own weights."""
    proposer_class: type[Proposer]
    proposer_config: ProposerConfig
    sampler_class: type[Sampler]
    sampler_config: SamplerConfig


def check_first(value: object) -> None:
    """Raise, before torch is imported or a model is loaded, if a configuration cannot be read or its method is not installed.

    Everything else is checked when the configuration is resolved.

    Args:
        value: in any form that `LLM` accepts; None for no speculation.

    Raises:
        ConfigError: for text or a file that does not hold a mapping.
        PluginError: for a method that is not installed.
    """
    if value is None:
        return
    method = read_mapping(value).get("method")
    if not isinstance(method, str) or is_class_path(method):
        return
    known = known_method(method)
    if known is None:
        registry.find(Group.PROPOSERS, method)
    elif known.draft != "class":
        registry.find(Group.PROPOSERS, known.name)


def parse_speculative_config(
    value: object, *, target: TargetFacts | None = None
) -> ResolvedSpeculation | None:
    """Resolve a `speculative_config` and check it against the plugins it names and the target.

    Args:
        value: a mapping, JSON or YAML text, the path of a file with either, or None for no speculation.
        target: facts about the target; None skips the checks against it.

    Raises:
        ConfigError: naming the invalid key, its value and the remedy.
        PluginError: if the method or the sampler is not installed or cannot be loaded.
    """
    if value is None:
        return None
    if isinstance(value, SpeculativeConfig):
        config, rest = value, dict[str, Any]()
    else:
        config, rest = split(speculative_keys().with_new_names(_without_traps(read_mapping(value))))
    return resolve(config, rest, target)


def default_sampler() -> tuple[type[Sampler], SamplerConfig]:
    """Return the sampler and its configuration for an engine without speculation."""
    sampler = registry.sampler(DEFAULT_SAMPLER)
    return sampler, sampler.Config()


def resolve(
    config: SpeculativeConfig, rest: Mapping[str, Any], target: TargetFacts | None
) -> ResolvedSpeculation:
    """Resolve validated common keys and all other keys; see `parse_speculative_config`."""
    config = _with_directory(config, target)
    inferred = infer_method(config, target)
    is_class = inferred.known is not None and inferred.known.draft == "class"
    proposer = registry.proposer(inferred.model if is_class and inferred.model else inferred.method)
    sampler = registry.sampler(config.rejection_sample_method)
    own, samplers = _assign(rest, proposer, sampler)
    own = proposer.Config.complete(own, partial(_member, config, samplers, target))
    given = config.model_dump(exclude_unset=True, exclude_none=True)
    defaults = {key: own.pop(key) for key in own.keys() & SpeculativeConfig.model_fields.keys()}
    config = config.model_copy(update={k: v for k, v in defaults.items() if k not in given})
    if not sampler.is_lossless:
        notice(
            f"lossy {sampler.name}",
            f"{PLACE}: 'rejection_sample_method': {config.rejection_sample_method!r} is lossy: what comes out does not follow "
            "the target's distribution",
        )
    checkpoint = Checkpoint(inferred.model, config.revision) if inferred.model and not is_class else None

    common = _common_keys(config, DraftFacts(inferred, proposer, own, checkpoint, target), sampler)
    resolved = SpeculativeConfig(**common)
    proposer_config = _build(proposer.Config, _declared(common, proposer.Config) | own)
    proposer_config.check_fit(target)
    return ResolvedSpeculation(
        config=resolved,
        proposer_class=proposer,
        proposer_config=proposer_config,
        sampler_class=sampler,
        sampler_config=_build(sampler.Config, _declared(resolved.model_dump(), sampler.Config) | samplers),
    )


def with_checked_args(params: SamplingParams, resolved: ResolvedSpeculation | None) -> SamplingParams:
    """Return the parameters with `args` as the class of the method's plugin has read them.

    Raises:
        ConfigError: for a method that is not loaded, and for wrong `args`.
    """
    asked = params.speculative
    if not asked or not asked.keys() & {"method", "args"}:
        return params
    choices = {} if resolved is None else resolved.proposer_config.choices(resolved.proposer_class)
    name = asked.get("method", next(iter(choices)) if len(choices) == 1 else None)
    if name not in choices:
        wrong = "'args' need a 'method'" if name is None else f"'method' is {name!r}"
        raise ConfigError(
            f"SamplingParams: speculative: {wrong}; methods that are loaded: {', '.join(choices) or 'none'}"
        )
    kind = choices[name]
    try:
        args = kind.model_validate(dict(asked.get("args", {})))
    except ValidationError as error:
        raise ConfigError(explain(error, f"SamplingParams: speculative: args of {name!r}", kind)) from None
    return params.model_copy(update={"speculative": {**asked, "method": name, "args": args}})


def _member(
    whole: SpeculativeConfig,
    samplers: Mapping[str, Any],
    target: TargetFacts | None,
    value: Mapping[str, Any],
) -> tuple[type[Proposer], ProposerConfig]:
    """Resolve a nested configuration. The sampler, and defaults for `_INHERITED` keys, come from the outer one."""
    given = whole.model_dump(exclude_unset=True)
    defaults = {key: given[key] for key in _INHERITED if given.get(key) is not None}
    sampler = {"rejection_sample_method": whole.rejection_sample_method, **samplers}
    resolved = parse_speculative_config({**defaults, **value, **sampler}, target=target)
    assert resolved is not None
    return resolved.proposer_class, resolved.proposer_config


def _with_directory(config: SpeculativeConfig, target: TargetFacts | None) -> SpeculativeConfig:
    """Return the keys with a GGUF draft dequantised to the target's dtype; `zoo` is resolved later, it needs the method."""
    if config.model is None or config.model == ZOO:
        return config
    dtype = "auto" if target is None else target.dtype
    try:
        model = resolve_name(config.model, revision=config.revision, dtype=dtype)
    except (ConfigError, ModelError) as error:
        raise ConfigError(f"{PLACE}: 'model': {error}") from None
    return config.model_copy(update={"model": model})


def _common_keys(config: SpeculativeConfig, facts: DraftFacts, sampler: type[Sampler]) -> dict[str, Any]:
    """Return the common keys with all values derived from other keys, the draft or the target."""
    inferred = facts.inferred
    common = dict(inferred.implied) | config.model_dump(exclude_unset=True)
    common |= {
        "method": inferred.method,
        "model": None if facts.checkpoint is None else facts.checkpoint.model,
        "num_speculative_tokens": choose_tokens(config, facts),
        "draft_tensor_parallel_size": choose_ranks(config, facts),
        "draft_sample_method": choose_draft_sampling(config, facts.proposer, sampler),
    }
    if inferred.known is not None:
        common |= dict(inferred.known.forced)
    check_draft(common, facts)
    return common


def _without_traps(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raise for keys that are often put here but belong elsewhere."""
    if mapping.get("tensor_parallel_size") is not None:
        raise ConfigError(
            f"{PLACE}: 'tensor_parallel_size' is the target's, an argument of LLM; for the draft use "
            "'draft_tensor_parallel_size'"
        )
    return {key: value for key, value in mapping.items() if key != "tensor_parallel_size"}


def _assign(
    rest: Mapping[str, Any], proposer: type[Proposer], sampler: type[Sampler]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys that belong to the proposer and those that belong to the sampler.

    Raises:
        ConfigError: for keys that belong to neither.
    """
    own, samplers = {}, {}
    for key, value in rest.items():
        if key in proposer.Config.model_fields:
            own[key] = value
        elif key in sampler.Config.model_fields:
            samplers[key] = value
        elif not speculative_keys().absorbs(key, value) and (value is not None or not _samplers_with(key)):
            raise ConfigError(f"{PLACE}: {_stray(key, proposer, sampler)}")
    return own, samplers


def _stray(key: str, proposer: type[Proposer], sampler: type[Sampler]) -> str:
    from specdec.sampling_params import SamplingParams

    if key in SamplingParams.model_fields:
        return f"{key!r} is a sampling parameter: give it per request, SamplingParams({key}=...)"
    if owners := _samplers_with(key):
        return f"{key!r} is a key of 'rejection_sample_method': {' or '.join(map(repr, owners))}, not of {sampler.name!r}"
    fields = {*SpeculativeConfig.model_fields, *proposer.Config.model_fields, *sampler.Config.model_fields}
    return f"{unknown_key(key, fields)} (method {proposer.name!r}, sampler {sampler.name!r})"


def _samplers_with(key: str) -> list[str]:
    """Return the installed samplers that have a key of this name."""
    found = []
    for info in registry.installed(registry.Group.SAMPLERS):
        with suppress(PluginError):
            if registry.may_load(info) and key in registry.sampler(info.name).Config.model_fields:
                found.append(info.name)
    return found


def _declared(keys: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key in model.model_fields and value is not None}


def _build(model: type[Model], keys: Mapping[str, Any]) -> Model:
    try:
        return model(**keys)
    except ValidationError as error:
        raise ConfigError(explain(error, PLACE, model)) from None
