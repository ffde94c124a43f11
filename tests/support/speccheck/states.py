"""Whether a proposer that kept hidden states has the ones that chose its tokens."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from speccheck.proposers import HiddenRecorder
from specdec import FinishReason


@torch.inference_mode()
def plain_states(model: PreTrainedModel, tokens: list[int]) -> list[torch.Tensor]:
    """Return final-norm states and inputs of layers 0 and 1, by `transformers` alone."""
    out = model.base_model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return [out.last_hidden_state[0], out.hidden_states[0][0], out.hidden_states[1][0]]


def check_states(model: PreTrainedModel, proposer: HiddenRecorder, name: str, text: list[int]) -> None:
    """Assert that a request ended with this text, and that each token came with the states of the position before it."""
    tokens, states, reason = proposer.final[name]
    assert reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert tokens == text
    assert len(states) == len(text)
    wanted = plain_states(model, text)
    for position, row in enumerate(states):
        assert len(row) == 3
        for got, want in zip(row, wanted, strict=True):
            expected = torch.zeros_like(got) if position == 0 else want[position - 1]
            assert torch.allclose(got, expected, atol=1e-5, rtol=1e-5), f"{name} at {position}"
