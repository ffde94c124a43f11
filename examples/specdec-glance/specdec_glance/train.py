"""`python -m specdec_glance.train OUT`: trains a head for the zoo's target, in about a minute on an idle machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, smooth_l1_loss
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import specdec_zoo
from specdec_glance.head import GlanceHead

LENGTH = 64
"""Tokens of a text that are learned from."""


def texts_of_zoo(count: int) -> torch.Tensor:
    """Return texts `[N, LENGTH]`: the zoo's prompts that are long enough."""
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    texts = [tokenizer(prompt["prompt"])["input_ids"] for prompt in specdec_zoo.prompts(count)]
    return torch.tensor([text[:LENGTH] for text in texts if len(text) >= LENGTH])


def train(out: Path, *, num_texts: int = 200, num_steps: int = 300) -> list[float]:
    """Train a head and save it; returns the losses.

    Args:
        out: directory for `config.json` and `model.safetensors`.
        num_texts: how many of the zoo's prompts to learn from.
        num_steps: steps of 8 texts each.
    """
    target = LlamaForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32)
    assert isinstance(target.config, LlamaConfig)
    target.eval().requires_grad_(False)
    texts = texts_of_zoo(num_texts)
    states = torch.cat([target.model(part).last_hidden_state for part in texts.split(8)])
    torch.manual_seed(0)
    head = GlanceHead(target.config, target.get_input_embeddings(), target.get_output_embeddings())
    optimizer = torch.optim.AdamW(head.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, num_steps)
    positions = torch.arange(1, LENGTH)[None]
    losses = []
    for _ in range(num_steps):
        chosen = torch.randint(len(texts), (8,))
        before, after = states[chosen, :-1], states[chosen, 1:]
        # Token j comes with the state before it; what is learned is the state after it.
        predicted, _ = head(texts[chosen, 1:], positions, before)
        logits = head.project(predicted).flatten(0, 1)
        wanted = head.project(after).flatten(0, 1).softmax(-1)
        loss = cross_entropy(logits, wanted) + smooth_l1_loss(predicted, after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps({"hidden_size": target.config.hidden_size}))
    save_file(head.own_weights(), out / "model.safetensors")
    return losses


if __name__ == "__main__":
    found = train(Path(sys.argv[1]))
    print(f"the loss fell from {found[0]:.2f} to {found[-1]:.2f}; the head is in {sys.argv[1]}")
