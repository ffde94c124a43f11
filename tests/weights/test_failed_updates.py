"""What becomes of an engine whose update ends half-way, of a proposer that does not follow, and of what was made of weights."""

from __future__ import annotations

from shutil import copytree
from typing import Any

import pytest
import torch
from pretend.heads import make
from safetensors.torch import load_file, save_file
from speccheck.engines import make_llm
from speccheck.hybrids import hybrid
from speccheck.weights import METHODS, OPTIONS, PARAMS, PROMPTS, tokens

import specdec_zoo
from specdec import LLM, ConfigError, EngineOptions, ModelError, PluginError, SamplingParams
from specdec_plugin_self_draft import kept
from specdec_runtime.backends import forms
from specdec_runtime.backends.comparison import agreement
from specdec_runtime.loading import new_weights


def test_a_proposer_that_cannot_follow_costs_its_drafts(new, expected, tmp_path, caplog) -> None:
    head = tmp_path / "head"
    copytree(specdec_zoo.path("eagle3"), head)
    llm = LLM("zoo", speculative_config={**METHODS["eagle3"], "model": str(head)}, **OPTIONS)
    assert tokens(llm) == expected[0]
    [file] = head.glob("*.safetensors")
    stored = file.read_bytes()
    file.unlink()
    with pytest.raises(PluginError, match="the weights are new; the proposer does not follow: PluginError: "):
        llm.update_weights(new)
    with caplog.at_level("WARNING", "specdec"):
        assert tokens(llm) == expected[1]
    assert "eagle3: it does not follow the target's new weights: FileNotFoundError: " in caplog.text
    llm.sleep()
    with pytest.raises(
        PluginError, match="the weights are back; the proposer does not follow: PluginError: "
    ):
        llm.wake_up()
    assert tokens(llm) == expected[1]
    llm.sleep(level=2)
    llm.wake_up()
    file.write_bytes(stored)
    llm.update_weights(new)
    assert tokens(llm) == expected[1]
    llm.reset_prefix_cache()
    longer = [params.model_copy(update={"max_tokens": 32}) for params in PARAMS]
    assert sum(output.metrics.num_drafts for output in llm.generate(PROMPTS, longer))


def test_a_proposer_that_does_not_let_go_sleeps_too(new, expected, monkeypatch) -> None:
    llm = LLM("zoo", speculative_config=METHODS["ngram"], **OPTIONS)

    def fail(_: object) -> None:
        raise RuntimeError("mine")

    monkeypatch.setattr(llm._built.engine.proposer, "weights_changed", fail)
    with pytest.raises(PluginError, match=r"LLM.sleep: the engine sleeps; .*weights_changed raised .*mine"):
        llm.sleep(2)
    assert llm.is_sleeping()
    llm.wake_up()
    with pytest.raises(PluginError, match=r"LLM.update_weights: the weights are new; .*mine"):
        llm.update_weights(new)
    assert tokens(llm) == expected[1]


def test_a_change_that_ends_half_way_closes_the_engine(shared, new, old, expected, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    assert tokens(shared) == expected[0]
    runner = shared._built.scorer.runner  # type: ignore[attr-defined]  # the default scorer
    with monkeypatch.context() as patch:
        patch.setattr(runner, "renew", fail)
        with pytest.raises(MemoryError):
            shared.update_weights(new)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"ended half-way: call update_weights\(\) again"):
            tokens(shared)
        with pytest.raises(ConfigError, match="is missing"):
            shared.update_weights({})
        shared.sleep()
        shared.wake_up()
    shared.update_weights(old)
    assert not any(output.num_cached_tokens for output in shared.generate(PROMPTS, PARAMS))
    assert tokens(shared) == expected[0]
    with monkeypatch.context() as patch:
        patch.setattr(runner, "let_go", fail)
        with pytest.raises(MemoryError):
            shared.sleep()
    assert shared.is_sleeping()
    shared.wake_up()
    assert tokens(shared) == expected[0]


def test_forms_are_compared_with_new_weights(shared, old, monkeypatch) -> None:
    counts = []
    monkeypatch.setattr(forms, "agreement", lambda *given: counts.append(1) or agreement(*given))
    shared.update_weights(old)
    assert counts
    counts.clear()
    shared.sleep()
    shared.wake_up()
    assert not counts


def test_a_revision_is_that_of_its_repository(shared, folder, monkeypatch) -> None:
    scorer: Any = shared._built.scorer
    for name in (folder, "zoo"):
        shared.update_weights(name)
    assert scorer._handle.checkpoint._checkpoint.directory == specdec_zoo.path("target")
    asked = []

    def look(options: EngineOptions) -> None:
        asked.append(options.revision)
        raise ModelError("offline")

    monkeypatch.setattr(new_weights, "locate", look)
    for name in ("org/own", "org/other"):
        with pytest.raises(ModelError, match="offline"):
            new_weights.read_weights(name, scorer.target.model, EngineOptions(model="org/own", revision="v1"))
    assert asked == ["v1", None]


@pytest.mark.parametrize("kind", ["mlp", "medusa"])
def test_heads_on_states_are_read_again(kind, old, expected, tmp_path) -> None:
    llm = LLM("zoo", speculative_config=make(kind, tmp_path), **OPTIONS)
    proposer: Any = llm._built.engine.proposer
    llm.sleep()
    assert not hasattr(proposer, "_heads")
    llm.wake_up()
    stored = load_file(tmp_path / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in stored.items()}, tmp_path / "model.safetensors")
    first = next(iter(proposer._heads.parameters())).clone()
    llm.update_weights(old)
    assert torch.allclose(next(iter(proposer._heads.parameters())), first + 1)
    outputs = llm.generate(PROMPTS, PARAMS)
    assert [output.outputs[0].token_ids for output in outputs] == expected[0]
    assert sum(output.metrics.num_drafts for output in outputs)


def test_rounded_weights_of_a_step_of_training_are_not_kept(new, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kept, "_LEAST_WEIGHTS", 1)
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path)
    llm = LLM("zoo", speculative_config=METHODS["self"], **OPTIONS)
    files = list((tmp_path / "self").iterdir())
    assert len(files) == 1
    llm.update_weights(new)
    assert list((tmp_path / "self").iterdir()) == files


def test_recurrent_states_are_given_back() -> None:
    llm = make_llm(hybrid("lfm2"))
    prompts = [{"prompt_token_ids": [3, 1, 4, 1, 5]}]
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)

    def ids() -> list[int]:
        return list(llm.generate(prompts, params)[0].outputs[0].token_ids)

    def num_places() -> set[int]:
        return {len(held) for held in llm._built.scorer.states._pool._held.values()}  # type: ignore[union-attr]

    before, places = ids(), num_places()
    assert 0 not in places
    llm.sleep()
    assert num_places() == {0}
    llm.wake_up()
    assert num_places() == places
    assert ids() == ids() == before
