"""`generate` of transformers as a worker. Settings are further arguments of `generate`.

`assistant_model` is a folder; with `speculative_config` specdec's loop runs.
"""

from __future__ import annotations

import torch
from common.protocol import Counters, Load, Settings
from common.worker import serve
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

PAD = 0


class TransformersEngine:
    """A model with padded batches: prompts of different lengths are padded on the left.

    Args:
        model: the loaded model.
        settings: further arguments of `generate`.
    """

    def __init__(self, model: PreTrainedModel, settings: Settings) -> None:
        self._model = model
        self._settings = settings

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Generate one batch, past any end-of-text token."""
        width = max(len(prompt) for prompt in prompts)
        rows = [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with torch.inference_mode():
            output = self._model.generate(  # type: ignore[operator]  # transformers types it as Tensor | Module
                torch.tensor(rows, device=self._model.device),
                attention_mask=torch.tensor(mask, device=self._model.device),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=PAD,
                **self._settings,
            )
        token_ids: list[list[int]] = output[:, width:].tolist()
        return token_ids

    def counters(self) -> Counters:
        """Return no counters; `generate` has none."""
        return {}


def load(order: Load) -> TransformersEngine:
    """Load the model, without its end-of-text token."""
    return make_engine(_load(order["model"], order["dtype"]), order["settings"])


def make_engine(model: PreTrainedModel, settings: Settings) -> TransformersEngine:
    """Return an engine around a loaded model; an assistant is loaded with the model's dtype and device."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = dict(settings)
    _forget_end(model)
    if "assistant_model" in settings:
        dtype = str(model.dtype).removeprefix("torch.")
        assistant = _load(str(settings["assistant_model"]), dtype)
        torch.nn.Module.to(assistant, model.device)
        assert assistant.generation_config is not None
        # The same number of tokens in every draft, as on our side.
        assistant.generation_config.num_assistant_tokens = settings.pop("num_assistant_tokens")
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0.0
        settings["assistant_model"] = assistant
    if "speculative_config" in settings:
        # Imported only here, since importing it changes how threads wait.
        from specdec_transformers import generate

        settings["custom_generate"] = generate
        settings["engine_options"] = {"enable_prefix_caching": False}  # rounds repeat the same prompts
    return TransformersEngine(model, settings)


def _load(folder: str, dtype: str) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    _forget_end(model)
    model.eval()
    return model


def _forget_end(model: PreTrainedModel) -> None:
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None


if __name__ == "__main__":
    serve(load, ["transformers", "torch"])
