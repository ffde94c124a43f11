"""What cannot be served right is refused at load, with the reason; what can be is let in."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from speccheck.engines import greedy, letter_tokenizer, make_llm, tokens_of
from speccheck.identity import references
from speccheck.models import BASE, MAX_LEN, VOCAB, make, prompts, tiny

from specdec import LLM, ConfigError, ModelError
from specdec_runtime.loading.checkpoint import SafetensorsReader

ALIEN = {
    "falcon": lambda: hf.FalconConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=False
    ),
    "bloom": lambda: hf.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "mpt": lambda: hf.MptConfig(vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
    "gptj": lambda: hf.GPTJConfig(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "codegen": lambda: hf.CodeGenConfig(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_ctx=64
    ),
}
STATEFUL = {
    "rwkv": lambda: hf.RwkvConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2),
    "minimax": lambda: hf.MiniMaxConfig(
        **BASE, num_local_experts=4, layer_types=["linear_attention", "full_attention"]
    ),
}  # fmt: skip


def load(model: Any, **arguments: Any) -> LLM:
    return LLM(model, **{"skip_tokenizer_init": True, "max_num_seqs": 2} | arguments)


def bare(config: hf.PretrainedConfig) -> hf.PreTrainedModel:
    model: hf.PreTrainedModel = hf.AutoModelForCausalLM.from_config(config)
    return model


@pytest.mark.parametrize("name", ALIEN)
def test_attention_that_would_bypass_the_cache(name) -> None:
    model = make(ALIEN[name]())
    if model._supports_attention_backend:  # GPT-J and CodeGen since transformers 5.24
        given = prompts([9, 20])
        assert tokens_of(load(model, max_model_len=64), given, greedy(8)) == references(model, given, 8)
        return
    with pytest.raises(ModelError, match="attention interface"):
        load(model, max_model_len=64)


@pytest.mark.parametrize("name", STATEFUL)
def test_state_that_cannot_be_rolled_back(name) -> None:
    with pytest.raises(ModelError, match="rolled back"):
        load(bare(STATEFUL[name]()), max_model_len=64)


@pytest.mark.parametrize("name", ["falcon", "minimax", "rwkv"])
def test_the_same_from_a_directory(name, tmp_path) -> None:
    bare((ALIEN | STATEFUL)[name]()).save_pretrained(tmp_path)
    with pytest.raises(ModelError):
        load(str(tmp_path), max_model_len=64)


def test_encoder_decoder(tmp_path) -> None:
    config = hf.T5Config(vocab_size=VOCAB, d_model=32, d_ff=32, num_layers=2, num_heads=4, d_kv=8)
    hf.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="encoder-decoder"):
        load(str(tmp_path))


def test_attention_in_chunks_of_the_text() -> None:
    config = hf.Llama4TextConfig(
        **BASE, head_dim=8, intermediate_size_mlp=48, num_local_experts=2, attention_chunk_size=8,
        interleave_moe_layer_step=2, layer_types=["chunked_attention", "full_attention"],
    )  # fmt: skip
    model = make(config)
    with pytest.raises(ModelError, match=r"chunks.*: pass max_model_len=8 or less"):
        load(model, max_model_len=64)


def test_a_window_that_only_the_mask_knows_is_honoured() -> None:
    """PhiMoE does not repeat its window as an argument of attention."""
    model = tiny("phimoe")
    many = prompts([50, 3], seed=8)
    expected = references(model, many, 12)
    assert tokens_of(make_llm(model), many, greedy(12)) == expected


def test_adapters(tmp_path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "x"}))
    with pytest.raises(ModelError, match="adapter"):
        load(str(tmp_path))


def test_directories_without_a_model(tmp_path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot read"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises((ModelError, ConfigError), match=r"cannot (be )?read"):
        load(str(tmp_path))


def test_a_checkpoint_without_weights(tmp_path) -> None:
    hf.LlamaConfig(**BASE).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot load"):
        load(str(tmp_path))


def test_pickles_are_opened_on_request_only(tmp_path) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="allow_pickle"):
        load(str(tmp_path))
    prompt = prompts([20])
    expected = references(model, prompt, 8)
    llm = load(str(tmp_path), allow_pickle=True)
    assert tokens_of(llm, prompt, greedy(8)) == expected


def test_a_directory_a_path_and_an_object_give_the_same(tmp_path) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path)
    prompt = prompts([20])
    expected = references(model, prompt, 8)
    for given in (str(tmp_path), tmp_path):
        assert tokens_of(load(given, dtype="float32"), prompt, greedy(8)) == expected
    with pytest.raises(ConfigError, match="PreTrainedModel"):
        load(3)
    with pytest.raises(ConfigError, match="dtype='int8'"):
        load(str(tmp_path), dtype="int8")


DYNAMIC = {
    "rope_type": "dynamic",
    "rope_theta": 10000.0,
    "factor": 2.0,
    "original_max_position_embeddings": 32,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 5.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize("rope", [DYNAMIC, LONG], ids=["dynamic", "longrope"])
def test_positions_scaled_by_length_are_refused_beyond_the_original_window(rope) -> None:
    config = hf.LlamaConfig(**BASE, rope_parameters=rope)
    with pytest.raises(ModelError, match="max_model_len=32"):
        load(make(config))
    with pytest.raises(ModelError, match="max_model_len=32"):
        load(make(config), max_model_len=33)


@pytest.mark.parametrize("rope", [DYNAMIC, LONG], ids=["dynamic", "longrope"])
def test_and_right_below_it(rope) -> None:
    model = make(hf.LlamaConfig(**BASE, rope_parameters=rope))
    many = prompts([20, 3, 11], seed=4)
    expected = references(model, many, 12)
    for eager in (True, False):
        assert tokens_of(make_llm(model, max_model_len=32, enforce_eager=eager), many, greedy(12)) == expected


def test_longrope_of_phi3(tmp_path) -> None:
    config = hf.Phi3Config(
        **BASE | {"original_max_position_embeddings": 32},
        rope_parameters={
            k: v for k, v in LONG.items() if k not in ("factor", "original_max_position_embeddings")
        },
    )
    model = make(config)
    with pytest.raises(ModelError, match="32"):
        load(model)
    many = prompts([20, 3], seed=4)
    assert tokens_of(make_llm(model, max_model_len=32), many, greedy(12)) == references(model, many, 12)


@pytest.mark.parametrize("parameters", [
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 32},
])  # fmt: skip
def test_scaling_that_does_not_depend_on_length_is_fine(parameters) -> None:
    model = make(hf.LlamaConfig(**BASE, rope_parameters=parameters))
    many = prompts([70, 3], seed=4)
    assert tokens_of(make_llm(model), many, greedy(8)) == references(model, many, 8)


def test_context_windows() -> None:
    model = tiny("llama")
    with pytest.raises(ConfigError, match=str(MAX_LEN)):
        load(model, max_model_len=MAX_LEN + 1)
    with pytest.raises(ConfigError, match="kv_cache_memory_bytes"):
        load(model, kv_cache_memory_bytes=1000)


def test_the_cache_may_have_a_given_number_of_blocks() -> None:
    model = tiny("llama")
    needed = -(-(MAX_LEN + 1) // 16)
    llm = make_llm(model, max_model_len=MAX_LEN, block_size=16, num_gpu_blocks_override=needed + 2)
    assert llm._built.scorer.cache.num_slots == (needed + 2) * 16
    with pytest.raises(ConfigError, match=f"num_gpu_blocks_override=1 .* raise it to {needed}"):
        load(model, max_model_len=MAX_LEN, block_size=16, num_gpu_blocks_override=1)


def test_tensors_are_read_by_name_from_one_file_or_several(tmp_path) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="20KB")
    assert (tmp_path / "many" / "model.safetensors.index.json").exists()
    state = model.state_dict()
    for folder in ("one", "many"):
        reader = SafetensorsReader(tmp_path / folder)
        assert set(reader.names()) == set(state)
        for name, tensor in state.items():
            assert torch.equal(reader.read(name), tensor)
        with pytest.raises(KeyError, match="nothing_like_it"):
            reader.read("nothing_like_it")


@pytest.mark.parametrize(("other", "revision"), [({}, "v2"), ({"tokenizer": "."}, None)])
def test_the_tokenizer_is_of_the_models_revision(other, revision, tmp_path, monkeypatch) -> None:
    tiny("llama").save_pretrained(tmp_path)
    letter_tokenizer().save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    asked = []
    read = hf.AutoTokenizer.from_pretrained

    def record(name: str, **arguments: Any) -> Any:
        asked.append(arguments["revision"])
        return read(name, **arguments)

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", record)
    LLM(str(tmp_path), revision="v2", max_num_seqs=2, **other)
    assert asked == [revision]


@pytest.mark.parametrize("name", ["nope", "./nope"])
def test_a_name_that_leads_nowhere_is_not_asked_for(name, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.hf_hub_download", None)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", None)
    with pytest.raises(ModelError, match=f"there is no directory '{name}'"):
        LLM(name)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("config.json", b'"num_hidden_layers": ', b'"num_hidden_layers": null, "x": '),
        ("config.json", b'"num_key_value_heads": ', b'"num_key_value_heads": 0, "x": '),
        ("model.safetensors", b'"F32"', b'"F\xff2"'),
        ("tokenizer.json", b'"kf": ', b'"kf": -'),
        ("tokenizer_config.json", b"{", b'{"pad_token": 1.5, '),
    ],
)
def test_a_damaged_file_is_named_by_its_folder(tmp_path, name, old, new) -> None:
    tiny("llama").save_pretrained(tmp_path)
    letter_tokenizer().save_pretrained(tmp_path)
    file = tmp_path / name
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))
    with pytest.raises(ModelError, match=str(tmp_path)):
        LLM(str(tmp_path), max_model_len=MAX_LEN)


UNRUNNABLE = {
    "Input language unknown": lambda: hf.XmodConfig(
        **BASE | {"num_key_value_heads": 4}, is_decoder=True, languages=["en_XX"]
    ),
    "At least one of 'min' or 'max'": lambda: hf.DbrxConfig(
        d_model=32, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=VOCAB,
        attn_config={"kv_n_heads": 2, "clip_qkv": None, "rope_theta": 1e4},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 2, "moe_top_k": 1, "hidden_size": 32},
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", UNRUNNABLE)
def test_a_model_that_cannot_run_as_it_is_configured(reason) -> None:
    with pytest.raises(ModelError, match=f"cannot run as it is configured: .*{reason}"):
        load(bare(UNRUNNABLE[reason]()), max_model_len=60)


def test_a_device_that_a_given_model_is_not_on_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"device='meta', and the model that was given is on 'cpu': move it with"
    ):
        LLM(tiny("llama"), device="meta", skip_tokenizer_init=True)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_dtype_that_a_given_model_does_not_have_is_refused(dtype: object) -> None:
    with pytest.raises(ConfigError, match=r"dtype=.*bfloat16.*, and the model that was given has float32"):
        LLM(tiny("llama"), dtype=dtype, skip_tokenizer_init=True)
    LLM(tiny("llama"), dtype="float32", skip_tokenizer_init=True)
