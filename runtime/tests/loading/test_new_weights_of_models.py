"""New weights for models of other kinds: experts that files have one by one, weights in blocks, layers with states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from speccheck.hybrids import hybrid
from speccheck.models import prompts as tiny_prompts
from tiny_gguf import tiny_llama, write_gguf
from transformers import MixtralConfig, MixtralForCausalLM

from specdec import LLM, ConfigError, SamplingParams
from specdec.folders import compiled_folder

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def test_names_of_checkpoints_are_those_of_files(tmp_path) -> None:
    """Experts are one tensor in the model, and many in its files."""
    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, max_position_embeddings=256,
    )  # fmt: skip
    for seed in (0, 1):
        torch.manual_seed(seed)
        MixtralForCausalLM(config).save_pretrained(tmp_path / str(seed))
    prompt = {"prompt_token_ids": [5, 9, 40, 41, 42]}
    llm, fresh = (
        LLM(str(tmp_path / name), skip_tokenizer_init=True, block_size=4, dtype="float32")
        for name in ("0", "1")
    )
    wanted, before = (engine.generate(prompt, GREEDY)[0].outputs[0].token_ids for engine in (fresh, llm))
    assert wanted != before
    weights = load_file(tmp_path / "1/model.safetensors")
    expert = next(name for name in weights if "experts.3." in name)
    with pytest.raises(ConfigError, match=r"experts\.\d\.\S* and its like cannot be joined"):
        llm.update_weights({name: weights[name] for name in weights if name != expert})
    assert llm.generate(prompt, GREEDY)[0].outputs[0].token_ids == before
    llm.update_weights(weights)
    assert llm.generate(prompt, GREEDY)[0].outputs[0].token_ids == wanted


def test_weights_in_blocks_are_replaced_by_such(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(compiled_folder()))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    files = [write_gguf(tmp_path / f"{seed}.gguf", tiny_llama(seed), kind="Q8_0") for seed in (0, 1)]
    prompt = {"prompt_token_ids": [5, 9, 40, 41, 42, 9, 40]}
    llm, fresh = (LLM(str(file), dtype="float32") for file in files)
    wanted, before = (engine.generate(prompt, GREEDY)[0].outputs[0].token_ids for engine in (fresh, llm))
    assert wanted != before
    tiny_llama(1).save_pretrained(tmp_path / "floats")
    for weights in (dict(tiny_llama(1).state_dict()), tmp_path / "floats"):
        with pytest.raises(ConfigError, match=r"stay in blocks of 4 to 8 bits, and .*: load float weights"):
            llm.update_weights(weights)
    with pytest.raises(ConfigError, match="is another model"):
        llm.update_weights(write_gguf(tmp_path / "narrow.gguf", tiny_llama(1), kind="Q4_0"))
    assert llm.generate(prompt, GREEDY)[0].outputs[0].token_ids == before
    llm.update_weights(files[1])
    assert llm.generate(prompt, GREEDY)[0].outputs[0].token_ids == wanted
    wide = LLM(str(files[0]), dtype="float32", weights="widen")
    wide.update_weights(str(files[1]))
    other = LLM(str(files[1]), dtype="float32", weights="widen")
    texts = [engine.generate(prompt, GREEDY)[0].outputs[0].token_ids for engine in (wide, other)]
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_next", "bamba"])
def test_states_of_layers_are_forgotten(family) -> None:
    prompts = [{"prompt_token_ids": ids} for ids in tiny_prompts([41, 23], seed=3)]
    options: dict[str, Any] = {
        "block_size": 4,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
    }
    first, second = hybrid(family), hybrid(family)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter += 0.3 * parameter.std(correction=0) * torch.randn_like(parameter)
    weights = {name: tensor.clone() for name, tensor in second.state_dict().items()}
    llm, fresh = LLM(first, **options), LLM(second, **options)
    before = [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]
    llm.update_weights(weights)
    texts = [[o.outputs[0].token_ids for o in engine.generate(prompts, GREEDY)] for engine in (llm, fresh)]
    assert texts[0] == texts[1] != before
