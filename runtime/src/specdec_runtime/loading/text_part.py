"""Takes the language model out of a multimodal model: it is loaded by its own class, and serves text."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import transformers

from specdec.errors import ModelError
from specdec_runtime.models.spread import places

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_PROBE_TOKENS = 12


def is_multimodal(config: PretrainedConfig) -> bool:
    """Return whether a configuration describes parts beside the language model, such as a vision tower."""
    if any(hasattr(config, key) for key in ("vision_config", "audio_config", "image_token_id")):
        return True
    return (
        config.get_text_config() is not config
        and type(config) in transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING
    )


def check_text_part(config: PretrainedConfig, name: str) -> None:
    """Refuse a multimodal model unless `transformers` has a class for the whole and one for its language model alone.

    Raises:
        ModelError: naming the part without a class.
    """
    text = config.get_text_config()
    missing = None
    if text is config or type(text) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        missing = f"its language model ({text.model_type!r}) alone"
    elif type(config) not in transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING:
        missing = f"{config.model_type!r}, which could show that its language model alone gives the same"
    if missing is not None:
        raise ModelError(
            f"{name} is a multimodal model, and transformers has no class for {missing}: specdec serves text only"
        )


def text_part(whole: PreTrainedModel, name: str) -> PreTrainedModel:
    """Return the language model of a multimodal model, as the class that `transformers` has for it alone.

    Args:
        whole: the loaded model; its language model's modules are shared, and its other parts can be freed.
        name: path or hub id, for messages.

    Raises:
        ModelError: if the language model alone gives other logits than the whole model given text, or if the model is spread
            over several devices.
    """
    if found := places(whole):
        raise ModelError(
            f"{name} is a multimodal model spread over {', '.join(sorted(found))}: its language model is served on one device, "
            "or on those of tensor_parallel_size"
        )
    decoder = whole.get_decoder()
    kind: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(decoder.config)]
    text: Any = next((part for part in whole.modules() if type(part) is kind), None)
    if text is None:
        with torch.device("meta"):
            text = kind(decoder.config)
        setattr(text, text.base_model_prefix, decoder)
        text.set_output_embeddings(whole.get_output_embeddings())
    text.generation_config = whole.generation_config
    text.hf_quantizer = getattr(whole, "hf_quantizer", None)
    _check_equal(whole.eval(), text.eval(), name)
    part: PreTrainedModel = text
    return part


def of_text_part(report: Mapping[str, Any], whole: PreTrainedModel) -> dict[str, Any]:
    """Return what `from_pretrained` reports of the tensors of a multimodal model, for its language model only."""
    decoder, head = whole.get_decoder(), whole.get_output_embeddings()
    prefixes = tuple(f"{name}." for name, part in whole.named_modules() if part is decoder or part is head)
    return {
        "missing_keys": {key for key in report["missing_keys"] if key.startswith(prefixes)},
        "mismatched_keys": {key for key in report["mismatched_keys"] if key[0].startswith(prefixes)},
        "unexpected_keys": report["unexpected_keys"],
    }


@torch.no_grad()
def _check_equal(whole: PreTrainedModel, text: PreTrainedModel, name: str) -> None:
    """Compare the two on a few tokens; a whole model may attend in both directions, or embed tokens otherwise."""
    keys = whole.config.to_dict()
    special = [value for key, value in keys.items() if key.endswith(("token_id", "token_index"))]
    ids = [token for token in range(4 * _PROBE_TOKENS) if token not in special][:_PROBE_TOKENS]
    tokens = torch.tensor([ids], device=next(text.parameters()).device)
    marks = {"token_type_ids": torch.zeros_like(tokens)} if _accepts_token_type_ids(whole) else {}
    try:
        expected = whole(input_ids=tokens, use_cache=False, **marks).logits.float()
        got = text(input_ids=tokens, use_cache=False).logits.float()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a model's own code may raise anything
        raise ModelError(
            f"{name}: {type(whole).__name__} cannot be run on text, to compare its language model alone with it: "
            f"{type(error).__name__}: {error}"
        ) from error
    rounding = torch.finfo(text.dtype).eps ** 0.5
    if not (got - expected).norm() <= rounding * expected.norm():
        raise ModelError(
            f"{name}: {type(text).__name__} gives other logits for text than {type(whole).__name__}: specdec cannot serve the "
            "language model of this multimodal model"
        )


def _accepts_token_type_ids(whole: PreTrainedModel) -> bool:
    """Return whether a model is told which tokens are text (0), as its processor does."""
    return "token_type_ids" in inspect.signature(whole.forward).parameters
