"""Training sees what drafting will see: the same logits, position by position and step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner
from specdec_train.distillation import overlap
from specdec_train.heads.made import make
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import divergence, target_probs_of

RECURRENT = {
    name: replace(HEADS[name], num_steps=3, draft_vocab_size=40 if name == "eagle3" else 0)
    for name in ("eagle", "eagle3", "mtp")
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("place", [0, 4, 9])
def test_guesses_are_those_of_a_draft_along_the_true_tokens(name, place, target, documents):
    made = make(RECURRENT[name], target, documents)
    with torch.no_grad():
        for parameter in made.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    tokens = torch.tensor(documents[0][:20])[None]
    made.module.eval()
    with torch.no_grad():
        guesses = list(made.objective.guesses(tokens, is_whole=True))
    reader = made.objective.reader
    states = reader.read(tokens[:, :-1])
    features = made.module.combine(states.hidden[0], tuple(aux[0] for aux in states.aux)).detach()
    runner = ModuleRunner(made.module.requires_grad_(False), torch.device("cpu"), 64)
    runner.allocate(64)
    rows = place + 1
    output = runner.forward(
        PackedBatch(tokens[0, 1 : rows + 1], torch.arange(rows), [Segment(0, rows, 0, 0)], None, None),
        features[:rows],
    )
    logits, carry = output.logits[-1:], output.hidden_states[-1:]
    for step, guess in enumerate(guesses):
        torch.testing.assert_close(guess.logits[place], logits[0], rtol=1e-3, atol=1e-4)
        assert torch.equal(guess.wanted[place], states.logits[0, place + 1 + step])
        at = rows + step
        output = runner.forward(
            PackedBatch(tokens[0, at + 1 : at + 2], torch.tensor([at]), [Segment(0, 1, 0, at)], None, None),
            carry,
        )
        logits, carry = output.logits, output.hidden_states


def test_heads_of_a_speculator_guess_along_the_true_tokens(target, documents):
    made = make(HEADS["mlp"], target, documents)
    tokens = torch.tensor(documents[0][:20])[None]
    with torch.no_grad():
        guesses = list(made.objective.guesses(tokens, is_whole=True))
        states = StateReader(target).read(tokens[:, :-1])
        place = 6
        s = made.module.begin(states.hidden[0, place])
        for index, guess in enumerate(guesses):
            s, logits = made.module.step(index, s, tokens[0, place + 1 + index])
            torch.testing.assert_close(guess.logits[place], logits)
            assert torch.equal(guess.wanted[place], states.logits[0, place + 1 + index])


def test_states_are_the_inputs_of_layers_and_of_the_projection(target):
    tokens = torch.randint(1, 90, (2, 11))
    expected = target(input_ids=tokens, output_hidden_states=True)
    states = StateReader(target, (0, 2, 5, 6)).read(tokens)
    for k, aux in zip((0, 2, 5), states.aux[:3], strict=True):
        assert torch.equal(aux, expected.hidden_states[k])
    assert torch.equal(target.model.norm(states.aux[3]), expected.hidden_states[-1])
    assert torch.equal(states.hidden, expected.hidden_states[-1])
    assert torch.equal(states.logits, expected.logits)
    assert not any(layer._forward_pre_hooks for layer in target.model.layers)


def test_divergence_and_overlap_are_those_of_the_laws():
    wanted, logits = torch.randn(2, 5), torch.randn(2, 3)
    ids = torch.tensor([0, 2, 3])
    p, q = wanted.softmax(-1), logits.softmax(-1)
    among = wanted[..., ids].softmax(-1)
    expected = (among * (among / q).log()).sum(-1).mean()
    torch.testing.assert_close(
        divergence(logits, target_probs_of(wanted[..., ids]), torch.arange(2)), expected
    )
    sampled, greedy = overlap(logits, wanted, ids)
    torch.testing.assert_close(sampled, torch.minimum(p[..., ids], q).sum(-1))
    assert torch.equal(greedy.bool(), ids[logits.argmax(-1)] == wanted.argmax(-1))
