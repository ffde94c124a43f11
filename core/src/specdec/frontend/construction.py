"""Makes the engine of an `LLM` or `AsyncLLM` from its arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from specdec import registry
from specdec.config import target_of, translate_llm_arguments
from specdec.config.missing import check_installed
from specdec.config.model_name import locate
from specdec.engine_options import DEFAULT_SCORER, EngineOptions
from specdec.frontend.imports import importing
from specdec.frontend.loading_lines import loading_lines
from specdec.frontend.threads import enter_process
from specdec.text.reasoning import ReasoningMarkers

if TYPE_CHECKING:
    from specdec.assembly.build import BuiltEngine
    from specdec.frontend.input_processor import InputProcessor

_OPTION_NAMES = frozenset(field.name for field in fields(EngineOptions))


def build(
    model: Any, speculative_config: object, arguments: Mapping[str, Any]
) -> tuple[BuiltEngine, InputProcessor]:
    """Return an engine and its intake for the arguments of `LLM`."""
    enter_process()
    known = translate_llm_arguments({**arguments, "speculative_config": speculative_config}, _OPTION_NAMES)
    speculation = known.pop("speculative_config", None)
    check_installed(model, speculation, known.get("scorer", DEFAULT_SCORER))
    options = EngineOptions(model=model, **known)
    with loading_lines(model):
        return _build(options, speculation)


def _build(options: EngineOptions, speculation: object) -> tuple[BuiltEngine, InputProcessor]:
    is_first = "transformers.modeling_utils" not in sys.modules  # most of what is imported
    with importing() if is_first else nullcontext():
        # These import torch, which takes a second or two: after the checks of arguments, and not with this module.
        from specdec.assembly.build import assemble, resolve_speculation
        from specdec.assembly.ranks import TensorParallel
        from specdec.frontend.adapters import Adapters
        from specdec.frontend.input_processor import InputProcessor

    options = locate(options)
    if isinstance(options.model, str) and speculation is None:
        found = target_of(options.model, options.revision)
        if found is not None:
            options, speculation = replace(options, model=found[0]), found[1]
    with importing() if is_first else nullcontext():
        resolved = resolve_speculation(options, speculation)  # which imports transformers
    if options.tensor_parallel_size > 1:
        built = registry.part("tensor_parallel", TensorParallel)().build(options, resolved)
    else:
        built = assemble(options, resolved)
    has_priorities = options.scheduling_policy == "priority"
    return built, InputProcessor(
        built.info,
        built.tokenizer,
        options.seed,
        has_priorities=has_priorities,
        speculation=resolved,
        reasoning=ReasoningMarkers.of(options.reasoning_config, built.tokenizer),
        adapters=Adapters(options, built.scorer),
    )
