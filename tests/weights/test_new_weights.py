"""New weights for an engine that runs: the tokens of an engine that was made with them, with every kind of drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from speccheck.adapters import make_adapter, target
from speccheck.weights import METHODS, OPTIONS, PARAMS, PROMPTS, Weights, tokens
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, AsyncLLM, ConfigError, ModelError, SamplingParams

ALWAYS = ("plain", "eagle3", "self")


@pytest.mark.parametrize(
    "method", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_tokens_are_those_of_an_engine_made_with_the_weights(method, old, new, folder, expected) -> None:
    before, after = expected
    assert all(one != other for one, other in zip(before, after, strict=True))
    llm = LLM("zoo", speculative_config=METHODS[method], **OPTIONS)
    for _ in range(2):  # the second time from the prefix cache
        assert tokens(llm) == before
    for weights in (new, folder):
        llm.update_weights(weights)
        outputs = llm.generate(PROMPTS, PARAMS)
        assert [output.outputs[0].token_ids for output in outputs] == after
        assert not any(output.num_cached_tokens for output in outputs)
        again = llm.generate(PROMPTS, PARAMS)
        assert [output.outputs[0].token_ids for output in again] == after
        # `auto` runs a cached prefix again for a head that it has not asked lately.
        assert method == "auto" or all(output.num_cached_tokens for output in again)
        assert method == "plain" or sum(output.metrics.num_drafts for output in outputs)
        llm.update_weights(iter(old.items()))
        assert tokens(llm) == before
    llm.sleep()
    llm.wake_up()
    assert tokens(llm) == before
    llm.sleep(level=2)
    llm.wake_up()
    llm.update_weights(new)
    assert tokens(llm) == after


def test_drafts_follow_the_weights(new, folder) -> None:
    def num_accepted(llm: LLM) -> int:
        return sum(output.metrics.num_accepted_tokens for output in llm.generate(PROMPTS, PARAMS))

    config = {**METHODS["self"], "adaptive": False}
    llm = LLM("zoo", speculative_config=config, **OPTIONS)
    llm.update_weights(new)
    assert num_accepted(llm) == num_accepted(LLM(str(folder), speculative_config=config, **OPTIONS)) > 20


def test_memory_of_texts_is_kept(old) -> None:
    llm = LLM("zoo", speculative_config={**METHODS["suffix"], "adaptive": False}, **OPTIONS)
    first, second = (llm.generate(PROMPTS, PARAMS), llm.update_weights(old), llm.generate(PROMPTS, PARAMS))[
        ::2
    ]
    accepted = [sum(output.metrics.num_accepted_tokens for output in outputs) for outputs in (first, second)]
    assert accepted[1] > 2 * accepted[0]


def wrong(name: str, change: Callable[[Weights], object], error: str) -> Any:
    return pytest.param(change, error, id=name)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        wrong("unknown", lambda w: w.update({"model.norm.wait": w["model.norm.weight"]}), "'model.norm.wait' is unknown"),
        wrong("missing", lambda w: w.pop("model.norm.weight"), "'model.norm.weight' is missing"),
        wrong("shape", lambda w: w.update({"model.norm.weight": torch.ones(7)}), r"has shape \[7\], the model's \[256\]"),
        wrong("row", lambda w: w.update({"model.norm.weight": torch.ones(1)}), r"has shape \[1\], the model's \[256\]"),
        wrong(
            "whole numbers",
            lambda w: w.update({"model.norm.weight": torch.ones(256, dtype=torch.int8)}), "has int8, the model's float32",
        ),
        wrong(
            "no numbers", lambda w: w["model.layers.1.mlp.up_proj.weight"].fill_(torch.nan),
            "'model.layers.1.mlp.up_proj.weight' has numbers that are not finite in float32",
        ),
        wrong("infinite", lambda w: w["model.norm.weight"].fill_(torch.inf), "'model.norm.weight' has numbers that are not"),
        wrong("no tensor", lambda w: w.update({"model.norm.weight": [1.0] * 256}), "'model.norm.weight' is not a plain"),
        wrong(
            "sparse", lambda w: w.update({"model.norm.weight": torch.ones(256).to_sparse()}),
            "'model.norm.weight' is not a plain"
        ),
        wrong(
            "two for one", lambda w: w.update({"lm_head.weight": w["lm_head.weight"] + 1}),
            "'lm_head.weight' and 'model.embed_tokens.weight' differ",
        ),
        wrong("nothing", lambda w: w.clear(), "is missing"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_change_nothing(change, error, new, expected, shared: LLM) -> None:
    weights = {name: tensor.clone() for name, tensor in new.items()}
    change(weights)
    with pytest.raises(ConfigError, match=error):
        shared.update_weights(weights)
    with pytest.raises(ConfigError, match=error):
        shared.update_weights(weights.items())
    outputs = shared.generate(PROMPTS, PARAMS)
    assert [output.outputs[0].token_ids for output in outputs] == expected[0]


def test_other_weights_are_refused(shared, new, old, folder, expected, tmp_path) -> None:
    other = tmp_path / "other"
    copytree(folder, other)
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"rms_norm_eps": ', '"rms_norm_eps": 1'))
    with pytest.raises(ConfigError, match=r"is another model: its config.json has 'rms_norm_eps'"):
        shared.update_weights(other)
    with pytest.raises(ConfigError, match="'num_hidden_layers': 3, and the target's 15"):
        shared.update_weights(specdec_zoo.path("draft"))
    (other / "config.json").write_text(config)
    stored = load_file(other / "model.safetensors")
    save_file(stored | {"model.norm.weight": torch.full((256,), torch.nan)}, other / "model.safetensors")
    with pytest.raises(ConfigError, match=r"'model.norm.weight' has numbers that are not finite"):
        shared.update_weights(other)
    with pytest.raises((ConfigError, ModelError), match="nowhere"):
        shared.update_weights(tmp_path / "nowhere")
    for weights in (7, [7], [("a",)], [("a", torch.ones(1)), ("a", torch.ones(1))]):
        with pytest.raises(ConfigError, match=r"LLM.update_weights: "):
            shared.update_weights(weights)  # type: ignore[arg-type]
    assert tokens(shared) == expected[0]


def test_weights_change_between_requests_only(shared, new, old, expected) -> None:
    stream = shared.stream(PROMPTS[0], PARAMS[0])
    next(stream)
    for change in (lambda: shared.update_weights(new), shared.sleep):
        with pytest.raises(ConfigError, match="1 samples run or wait: let their requests end, or abort them"):
            change()
    assert [output.outputs[0].token_ids for output in stream][-1] == expected[0][0]
    stream = shared.stream(PROMPTS[0], PARAMS[0])
    next(stream)
    stream.close()
    shared.update_weights(new)
    assert tokens(shared) == expected[1]
    shared.update_weights(old)
    assert tokens(shared) == expected[0]


def test_nothing_runs_in_sleep(shared, new, old, expected) -> None:
    with pytest.raises(ConfigError, match="level=3 must be 1"):
        shared.sleep(3)
    shared.wake_up()
    shared.sleep()
    shared.sleep()
    assert shared.is_sleeping()
    for call in (lambda: tokens(shared), lambda: shared.update_weights(new)):
        with pytest.raises(ConfigError, match=r"the engine sleeps: call wake_up\(\) first"):
            call()
    shared.wake_up()
    assert not shared.is_sleeping()
    assert tokens(shared) == expected[0]
    shared.sleep(level=2)
    shared.wake_up()
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"sleep\(level=2\) dropped the weights: call update_weights\(\) first"
        ):
            tokens(shared)
        with pytest.raises(ConfigError, match="is missing"):
            shared.update_weights({})
        shared.sleep()
        shared.wake_up()
    shared.update_weights(old)
    assert tokens(shared) == expected[0]


def test_memory_is_given_back() -> None:
    llm = LLM("zoo", speculative_config=METHODS["eagle3"], **OPTIONS)
    scorer: Any = llm._built.scorer
    weights, cache = scorer.target.model.model.embed_tokens.weight, scorer.cache
    assert cache.keys
    assert weights.untyped_storage().nbytes() == weights.nbytes
    llm.sleep()
    assert weights.untyped_storage().nbytes() == weights.nbytes
    llm.sleep(level=2)
    assert not cache.keys
    assert not scorer._runner_factory.runners
    assert weights.untyped_storage().nbytes() == 4
    assert weights.numel() == 1 << 20


def test_a_model_of_the_callers_is_trained_in_place(new, expected) -> None:
    model = target()
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    llm = LLM(model, tokenizer=tokenizer, speculative_config=METHODS["self"], **OPTIONS)
    assert tokens(llm) == expected[0]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(new[name])
    llm.update_weights(model.state_dict())
    assert tokens(llm) == expected[1]
    llm.sleep()
    assert torch.equal(model.model.norm.weight, new["model.norm.weight"])
    llm.wake_up()
    with pytest.raises(ConfigError, match="level=2 would drop the weights of a model that is yours"):
        llm.sleep(level=2)
    other = LLM(model, tokenizer=tokenizer, **OPTIONS)
    with pytest.raises(ConfigError, match="2 engines share this model"):
        llm.update_weights(new)
    other.shutdown()
    llm.update_weights(new)
    assert tokens(llm) == expected[1]


def test_numbers_are_rounded_to_the_targets(new, folder) -> None:
    options = OPTIONS | {"dtype": "bfloat16"}
    llm = LLM("zoo", **options)
    llm.update_weights(new)
    assert tokens(llm) == tokens(LLM(str(folder), **options))
    large = new | {"model.norm.weight": torch.full((256,), 1e39, dtype=torch.float64)}
    with pytest.raises(ConfigError, match="not finite in bfloat16"):
        llm.update_weights(large)


def test_adapters_stay(new, folder, tmp_path) -> None:
    adapter = make_adapter(
        target(), tmp_path / "adapter", r=4, lora_alpha=32, target_modules=["q_proj", "down_proj"]
    )
    options = OPTIONS | {"lora_modules": {"mine": str(adapter)}, "speculative_config": METHODS["ngram"]}
    llm, fresh = (LLM(model, **options) for model in ("zoo", str(folder)))
    names = ["mine", None, "mine"]
    before = tokens(llm, lora_request=names)
    llm.update_weights(new)
    assert tokens(llm, lora_request=names) == tokens(fresh, lora_request=names) != before


def test_async(new, old, expected) -> None:
    async def run() -> None:
        llm = AsyncLLM("zoo", speculative_config=METHODS["eagle3"], **OPTIONS)

        async def texts() -> list[list[int]]:
            async def one(prompt: str, params: SamplingParams) -> list[int]:
                last = [output async for output in llm.generate(prompt, params)][-1]
                return list(last.outputs[0].token_ids)

            return list(await asyncio.gather(*map(one, PROMPTS, PARAMS)))

        try:
            assert await texts() == expected[0]
            running = llm.generate(PROMPTS[0], PARAMS[0], "first")
            await anext(running)
            with pytest.raises(ConfigError, match="run or wait"):
                await llm.update_weights(new)
            await llm.abort("first")
            await llm.update_weights(new)
            assert await texts() == expected[1]
            await llm.sleep(2)
            assert await llm.is_sleeping()
            with pytest.raises(ConfigError, match="sleeps"):
                await texts()
            await llm.wake_up()
            await llm.update_weights(old)
            assert await texts() == expected[0]
        finally:
            llm.shutdown()

    asyncio.run(run())
