"""The function to pass as `custom_generate`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specdec import FinishReason
from specdec.engine import Request
from specdec.frontend import release_threads
from specdec_transformers.attached import Session, session_of
from specdec_transformers.caller import arguments_of_generate
from specdec_transformers.columns import Columns, joined
from specdec_transformers.prompts import prompt_rows
from specdec_transformers.raw_logits import RawLogits
from specdec_transformers.refusals import check_call
from specdec_transformers.requests import has_others, make_requests, pad_of


def generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    streamer: BaseStreamer | None = None,
    speculative_config: Any = None,
    engine_options: Mapping[str, Any] | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | GenerateDecoderOnlyOutput:
    """Generate with speculation: `model.generate(..., custom_generate=specdec_transformers.generate, speculative_config=...)`.

    At temperature 0 in float32 the tokens equal those of `generate`; otherwise they follow the distribution that `generate`
    draws from. Random numbers come from torch's generator, so `torch.manual_seed` makes a call reproducible.

    Args:
        model: the model; `generate` prepares this and all arguments up to `streamer`.
        input_ids: `[B, L]` prompts, padded on the left.
        logits_processor: all logits processors; the caller's own must depend only on their arguments, because they are
            also called for rejected drafted tokens, and one row at a time.
        stopping_criteria: criteria that end a row.
        generation_config: all other parameters.
        synced_gpus: must be False.
        streamer: receives every column of tokens `[B]`.
        speculative_config: a mapping, JSON or YAML text, or the path of a file with either, as for `LLM`; None: no drafts.
        engine_options: engine arguments of `LLM`, such as `kv_cache_memory_bytes` or `max_model_len`.
        **model_kwargs: the attention mask and other inputs that `generate` prepares.

    Returns:
        `[B, N]` prompts and new tokens, or a `GenerateDecoderOnlyOutput` with `return_dict_in_generate=True`.

    Raises:
        ConfigError: naming what is invalid or not supported, and the remedy.
        PluginError: for a method that cannot be loaded.
        ModelError: for a model that cannot be served correctly.
        RuntimeError: if no token can be chosen for a row, with the reason.
    """
    frame = inspect.currentframe()
    arguments = dict(arguments_of_generate(None if frame is None else frame.f_back))
    streamer = streamer or arguments.get("streamer")
    arguments["synced_gpus"] = synced_gpus or arguments.get("synced_gpus")
    check_call(model, generation_config, logits_processor, model_kwargs, arguments)
    prompts = prompt_rows(input_ids, model_kwargs.get("attention_mask"), model_kwargs.get("position_ids"))
    is_dict = bool(generation_config.return_dict_in_generate)
    wants_scores = is_dict and bool(generation_config.output_scores)
    wants_logits = is_dict and bool(generation_config.output_logits)
    pad_token_id = pad_of(stopping_criteria, generation_config)
    with session_of(model, speculative_config, engine_options or {}) as session:
        requests = make_requests(
            session, prompts, input_ids, logits_processor, stopping_criteria, generation_config
        )
        rows = [request.sequences[0] for request in requests]
        columns = None
        if streamer is not None or wants_scores or wants_logits or has_others(stopping_criteria):
            columns = Columns(
                input_ids,
                rows,
                pad_token_id,
                streamer=streamer,
                criteria=stopping_criteria if has_others(stopping_criteria) else None,
                processors=logits_processor if wants_scores else None,
                wants_logits=wants_logits or wants_scores,
            )
            if columns.wants_logits:
                for row in rows:
                    row.logprobs = RawLogits()
        _run(session, requests, columns)
        sequences = joined(input_ids, rows, pad_token_id) if columns is None else columns.input_ids
    if streamer is not None:
        streamer.end()
    if not is_dict:
        return sequences
    return GenerateDecoderOnlyOutput(
        sequences=cast(torch.LongTensor, sequences),
        scores=_typed(columns.scores) if columns is not None and wants_scores else None,
        logits=_typed(columns.logits) if columns is not None and wants_logits else None,
    )


def _typed(columns: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
    return cast(
        tuple[torch.Tensor], columns
    )  # transformers annotates a tuple of one tensor but means one per column


def _run(session: Session, requests: list[Request], columns: Columns | None) -> None:
    """Run the requests until they finish."""
    engine = session.built.engine
    ids = [request.request_id for request in requests]
    rows = [request.sequences[0] for request in requests]
    try:
        for request in requests:
            engine.add(request)
        while not (all(row.is_finished for row in rows) if columns is None else columns.is_complete):
            engine.step()
            if columns is not None:
                engine.abort([ids[index] for index in columns.advance()])
            for index, row in enumerate(rows):
                if row.finish_reason is FinishReason.ERROR and (columns is None or columns.needs(index)):
                    raise RuntimeError(f"generate: row {index} cannot go on: {row.stop_reason}")
    finally:
        engine.abort(ids)
        release_threads()
