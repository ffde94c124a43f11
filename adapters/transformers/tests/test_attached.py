"""The engine on a model: made once, made anew when it must be, gone with the model."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from speccheck.hybrids import hybrid
from speccheck.identity import reference
from speccheck.models import prompts
from transformers import PreTrainedModel

import specdec_transformers
from specdec import ConfigError
from specdec_transformers import attached

NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


def call(model: PreTrainedModel, batch: dict[str, torch.Tensor], **given: Any) -> torch.Tensor:
    asked = {"max_new_tokens": 8, "speculative_config": NGRAM} | given
    found: torch.Tensor = model.generate(**batch, **asked, custom_generate=specdec_transformers.generate)
    return found


def engine_of(model: PreTrainedModel) -> object:
    return model._specdec.session.built.engine


def test_one_engine_for_like_calls(fresh_model, batch) -> None:
    call(fresh_model, batch)
    first = engine_of(fresh_model)
    call(fresh_model, batch, speculative_config=dict(reversed(NGRAM.items())), do_sample=True)
    assert engine_of(fresh_model) is first
    call(fresh_model, batch, speculative_config=NGRAM | {"num_speculative_tokens": 2})
    assert engine_of(fresh_model) is not first


@pytest.mark.parametrize("is_eager", [False, True])
def test_later_calls_say_the_same(fresh_model, batch, is_eager) -> None:
    expected = fresh_model.generate(**batch, max_new_tokens=8)
    for _ in range(3):
        found = call(fresh_model, batch, engine_options={"enforce_eager": is_eager})
        assert torch.equal(found, expected)
        assert fresh_model.config._attn_implementation == "eager"


@pytest.mark.parametrize("how", ["in place", "anew"])
def test_new_weights_count(fresh_model, batch, how) -> None:
    before = call(fresh_model, batch)
    layer = fresh_model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        if how == "in place":
            layer.weight.neg_()
        else:
            layer.weight = torch.nn.Parameter(-layer.weight)
    expected = fresh_model.generate(**batch, max_new_tokens=8)
    assert not torch.equal(expected, before)
    assert torch.equal(call(fresh_model, batch), expected)


def test_an_adapted_layer_counts(fresh_model, batch) -> None:
    call(fresh_model, batch)
    plain = fresh_model.model.layers[1].mlp.down_proj

    class Adapted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.more = plain, torch.nn.Linear(48, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.more(x)

    torch.manual_seed(0)
    fresh_model.model.layers[1].mlp.down_proj = Adapted()
    expected = fresh_model.generate(**batch, max_new_tokens=8)
    assert torch.equal(call(fresh_model, batch), expected)


def test_hooks_are_called(fresh_model, batch, caplog) -> None:
    call(fresh_model, batch)
    handle = fresh_model.model.layers[0].register_forward_hook(lambda module, args, output: output * 0.5)
    expected = fresh_model.generate(**batch, max_new_tokens=8)
    assert torch.equal(call(fresh_model, batch), expected)
    assert "forward hooks" in caplog.text
    handle.remove()
    assert torch.equal(call(fresh_model, batch), fresh_model.generate(**batch, max_new_tokens=8))


def test_another_hook_is_not_given_what_the_last_one_made(fresh_model, batch) -> None:
    said = []
    for factor in (0.5, 2.0):
        layer = fresh_model.model.layers[0]
        handle = layer.register_forward_hook(lambda module, args, output, by=factor: output * by)
        said.append(call(fresh_model, batch))
        assert torch.equal(said[-1], fresh_model.generate(**batch, max_new_tokens=8))
        handle.remove()
    assert not torch.equal(*said)


def test_another_adapter_is_not_given_what_the_last_one_made(fresh_model, batch) -> None:
    """`_active_adapter` and `_disable_adapters` are what PEFT's `set_adapter` and `disable_adapters` set."""

    class Adapted(torch.nn.Module):
        _disable_adapters = False
        _active_adapter = "one"

        def __init__(self, base: torch.nn.Module) -> None:
            super().__init__()
            self.base = base
            self.lora = torch.nn.ModuleDict({name: torch.nn.Linear(48, 32) for name in ("one", "two")})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            more = 0.0 if self._disable_adapters else self.lora[self._active_adapter](x)
            return self.base(x) + more

    torch.manual_seed(0)
    layer = fresh_model.model.layers[0].mlp
    layer.down_proj = Adapted(layer.down_proj)
    said = []
    for switches in ({}, {"_active_adapter": "two"}, {"_disable_adapters": True}):
        vars(layer.down_proj).update(switches)
        said.append(call(fresh_model, batch))
        assert torch.equal(said[-1], fresh_model.generate(**batch, max_new_tokens=8))
    assert len({str(found) for found in said}) == 3


def test_a_file_is_read_at_every_call(fresh_model, batch, tmp_path) -> None:
    path = tmp_path / "speculation.yaml"
    for k in (2, 3):
        path.write_text(f"method: ngram\nnum_speculative_tokens: {k}\n")
        call(fresh_model, batch, speculative_config=str(path))
        assert fresh_model._specdec.session.num_speculative_tokens == k


def test_the_model_is_left_as_it_was(fresh_model, batch) -> None:
    fresh_model.train()
    num_threads = torch.get_num_threads()
    names = list(fresh_model.state_dict())
    call(fresh_model, batch)
    assert fresh_model.training
    assert fresh_model.config._attn_implementation == "eager"
    assert torch.get_num_threads() == num_threads
    assert list(fresh_model.state_dict()) == names
    loss = fresh_model(**batch, labels=batch["input_ids"]).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in fresh_model.parameters())


def test_copies_begin_without_an_engine(fresh_model, batch) -> None:
    expected = call(fresh_model, batch)
    for other in (copy.deepcopy(fresh_model), pickle.loads(pickle.dumps(fresh_model))):
        assert other._specdec.session is None
        assert torch.equal(call(other, batch), expected)


def test_gone_with_the_model(fresh_model, batch) -> None:
    model = copy.deepcopy(fresh_model)
    call(model, batch)
    engine, kept = weakref.ref(engine_of(model)), weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None
    assert engine() is None


def test_released(fresh_model, batch) -> None:
    call(fresh_model, batch)
    assert specdec_transformers.metrics(fresh_model)
    engine = weakref.ref(engine_of(fresh_model))
    specdec_transformers.release(fresh_model)
    gc.collect()
    assert engine() is None
    with pytest.raises(ConfigError, match="call generate first"):
        specdec_transformers.metrics(fresh_model)
    specdec_transformers.release(fresh_model)


def test_one_call_at_a_time(fresh_model, batch) -> None:
    message = "another call on this model is running"
    with attached.session_of(fresh_model, NGRAM, {}), pytest.raises(ConfigError, match=message):
        call(fresh_model, batch)
    call(fresh_model, batch)


@torch.inference_mode()
def test_weights_made_in_inference_mode(batch, fresh_model) -> None:
    model = copy.deepcopy(fresh_model)
    expected = model.generate(**batch, max_new_tokens=8)
    assert model.lm_head.weight.is_inference()
    assert torch.equal(call(model, batch), expected)


def test_a_model_with_recurrent_layers() -> None:
    """It stays usable: copied, pickled, trained and called without an engine."""
    model = hybrid("qwen3_5")
    (prompt,) = prompts([41])
    ids = torch.tensor([prompt])
    expected = reference(model, prompt, 12)
    speculation = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    for each in (model, model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        got = each.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
            custom_generate=specdec_transformers.generate,
            speculative_config=speculation,
        )
        assert got[0, 41:].tolist() == expected
        assert reference(each, prompt, 12) == expected
    model(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_a_model_without_attention(name) -> None:
    """`generate` has a name of its own for its cache in some versions."""
    model, (prompt,) = hybrid(name), prompts([23])
    got = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=8,
        do_sample=False,
        pad_token_id=0,
        custom_generate=specdec_transformers.generate,
    )
    assert got[0, 23:].tolist() == reference(model, prompt, 8)
