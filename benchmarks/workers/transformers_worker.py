"""`generate` of transformers as a worker. Settings are further arguments of `generate`."""

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
                torch.tensor(rows),
                attention_mask=torch.tensor(mask),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=PAD,
                **self._settings,
            )
        token_ids: list[list[int]] = output[:, width:].tolist()
        return token_ids

    def counters(self) -> Counters:
        """Return nothing: `generate` does not tell."""
        return {}


def load(order: Load) -> TransformersEngine:
    """Load the model, without its end-of-text token."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(order["model"], dtype=getattr(torch, order["dtype"]))
    assert model.generation_config is not None
    model.generation_config.eos_token_id = None
    return TransformersEngine(model.eval(), order["settings"])


if __name__ == "__main__":
    serve(load, ["transformers", "torch"])
