"""The language model of a multimodal folder, as its publisher saves it, says what the multimodal class says to text."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from speccheck.engines import greedy, letter_tokenizer, proposer_of, scripted, tokens_of
from speccheck.identity import assert_identical, references
from speccheck.models import MAX_LEN, VOCAB, prompts, tiny
from speccheck.multimodal import REFUSED, SERVED, whole
from speccheck.states import check_states

from specdec import LLM, ModelError, SamplingParams
from specdec_runtime.models import keeps_states

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ngram": {"speculative_config": NGRAM},
    "eager": {"enforce_eager": True, "speculative_config": NGRAM},
    "hostile": {},
    "tiny cache": {"block_size": 4, "num_gpu_blocks_override": 44, "speculative_config": NGRAM},
}


def load(path: object, **arguments: Any) -> LLM:
    known = {"dtype": "float32", "max_num_seqs": 4, "skip_tokenizer_init": "tokenizer" not in arguments}
    return LLM(path, **known | arguments)


def counter(llm: LLM, name: str) -> float:
    return next(metric.value for metric in llm.get_metrics() if metric.name.endswith(name))


def without(path: Path, part: str) -> str:
    """Take one tensor out of a saved model; return its name."""
    file = path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if part in name)
    del tensors[name]
    save_file(tensors, file, metadata={"format": "pt"})
    return name


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a family's model and its folder."""
    made: dict[str, tuple[hf.PreTrainedModel, Path]] = {}

    def get(name: str) -> tuple[hf.PreTrainedModel, Path]:
        if name not in made:
            model = whole(SERVED[name](), seed=len(name))
            model.save_pretrained(path := tmp_path_factory.mktemp(name))
            made[name] = model, path
        return made[name]

    return get


FAST = {
    ("gemma3", "plain"),
    ("gemma3", "ngram"),
    ("gemma4_small", "hostile"),
    ("mistral3", "tiny cache"),
    ("llama4", "ngram"),
}


def is_broken(model: hf.PreTrainedModel, path: Path) -> bool:
    """Return whether a model cannot run on text in `transformers` itself, which is said; 5.24.0: Llama 4."""
    try:
        model(input_ids=torch.tensor([[1, 2]]))
    except AttributeError as error:
        with pytest.raises(ModelError, match=f"cannot be run on text.*{error}"):
            load(path)
        return True
    return False


@pytest.mark.parametrize(
    ("name", "run"),
    [
        pytest.param(name, run, marks=() if (name, run) in FAST else pytest.mark.full)
        for name in SERVED
        for run in RUNS
    ],
)
def test_says_what_the_multimodal_class_says(name: str, run: str, saved: Any) -> None:
    model, path = saved(name)
    if is_broken(model, path):
        return
    many = prompts([70, 3, 40, 21], seed=4)
    expected = references(model, many, 24)
    arguments = RUNS[run]
    if run == "hostile":
        texts = [prompt + text for prompt, text in zip(many, expected, strict=True)]
        is_chain = keeps_states(model.config)
        shaped = {"is_chain": is_chain, "shape": "chain" if is_chain else "mixed"}
        speculation = scripted(k=6, texts=texts, wrong=0.3, malformed_every=5, fails_every=7, **shaped)
        arguments = {"speculative_config": speculation}
    llm = load(path, **arguments)
    assert_identical(model, many, expected, tokens_of(llm, many, greedy(24)))
    if arguments:
        assert counter(llm, "num_draft_tokens") > 0


@pytest.mark.parametrize("name", SERVED)
def test_a_missing_tensor_of_the_text_is_named(name: str, tmp_path: Path, saved: Any) -> None:
    saved(name)[0].save_pretrained(tmp_path)
    lost = without(tmp_path, "layers.1.mlp.down_proj" if name != "llama4" else "layers.1.feed_forward.router")
    tail = lost.split("layers.")[1]
    with pytest.raises(ModelError, match=rf"1 missing, '[\w.]*language_model[\w.]*{tail}'"):
        load(tmp_path)


def test_a_tensor_of_the_text_of_another_shape_is_named(tmp_path: Path, saved: Any) -> None:
    saved("gemma3")[0].save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "layers.0.mlp.up_proj" in name)
    save_file(tensors | {name: tensors[name][:-1].clone()}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"up_proj.weight \[47, 32\] instead of \[48, 32\]"):
        load(tmp_path)


def test_the_output_projection_is_needed_unless_tied(tmp_path: Path, saved: Any) -> None:
    saved("mistral3")[0].save_pretrained(tmp_path)
    without(tmp_path, "lm_head")
    with pytest.raises(ModelError, match=r"1 missing, 'lm_head.weight'"):
        load(tmp_path)
    _, tied = saved("gemma3_tied")
    assert not [name for name in load_file(tied / "model.safetensors") if "lm_head" in name]


@pytest.mark.parametrize("name", ["gemma3", "gemma4_dense", "mistral3", "llama4"])
def test_a_missing_tensor_of_the_vision_tower_is_no_matter(name: str, tmp_path: Path, saved: Any) -> None:
    model, _ = saved(name)
    model.save_pretrained(tmp_path)
    without(tmp_path, "vision")
    if is_broken(model, tmp_path):
        return
    many = prompts([20])
    assert tokens_of(load(tmp_path), many, greedy(8)) == references(model, many, 8)


def test_one_line_says_that_text_alone_is_served(saved: Any, caplog: pytest.LogCaptureFixture) -> None:
    _, path = saved("gemma3")
    with caplog.at_level(logging.WARNING):
        load(path)
    told = [record.getMessage() for record in caplog.records if "multimodal" in record.getMessage()]
    assert told == [f"{path} is a multimodal model: its language model is loaded, for text only"]
    assert not [record for record in caplog.records if record.name.startswith("transformers")]


def test_the_tower_is_not_kept(saved: Any) -> None:
    _, path = saved("gemma3")
    held = load(path)._built.scorer.target.model
    names = [name for name, _ in held.named_parameters()]
    assert type(held) is hf.Gemma3ForCausalLM
    assert not [name for name in names if "vision" in name or "projector" in name]
    assert not [name for name, value in held.state_dict().items() if value.is_meta]


def test_an_object(saved: Any) -> None:
    model, _ = saved("gemma4_small")
    many = prompts([40, 3], seed=2)
    expected = references(model, many, 12)
    own = whole(SERVED["gemma4_small"](), seed=len("gemma4_small"))
    assert tokens_of(load(own, speculative_config=NGRAM), many, greedy(12)) == expected


def test_as_a_draft_model(saved: Any) -> None:
    target, (_, path) = tiny("gemma3"), saved("gemma3")
    many = prompts([40, 3], seed=2)
    speculation = {"method": "draft_model", "model": str(path), "num_speculative_tokens": 3}
    got = tokens_of(load(target, speculative_config=speculation), many, greedy(12))
    assert got == references(tiny("gemma3"), many, 12)


def test_drafting_for_itself_accepts_everything(saved: Any) -> None:
    _, path = saved("gemma3")
    speculation = {"method": "draft_model", "model": str(path), "num_speculative_tokens": 3}
    llm = load(path, speculative_config=speculation)
    llm.generate(prompts([40, 3], seed=2), greedy(12))
    assert counter(llm, "num_accepted_tokens") == counter(llm, "num_draft_tokens") > 0


@pytest.mark.parametrize("name", ["gemma3", "mistral3"])
def test_a_head_is_given_the_states_and_weights_of_the_whole(name: str, saved: Any) -> None:
    model, path = saved(name)
    many = prompts([40, 3], seed=2)
    texts = [prompt + text for prompt, text in zip(many, references(model, many, 12), strict=True)]
    llm = load(path, speculative_config=scripted("HiddenRecorder", 4, texts=texts, wrong=0.3))
    proposer = proposer_of(llm)
    outputs = llm.generate(many, greedy(12))
    assert proposer.complaints == []
    for output, text in zip(outputs, texts, strict=True):
        check_states(model, proposer, output.request_id, text)
    held = llm._built.scorer.target.model
    assert torch.equal(held.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert torch.equal(held.get_output_embeddings().weight, model.get_output_embeddings().weight)


@pytest.mark.parametrize("place", ["generation_config", "config", "text_config"])
def test_end_of_text(place: str, tmp_path: Path, saved: Any) -> None:
    model, _ = saved("gemma3")
    model.save_pretrained(tmp_path)
    prompt = prompts([20])
    end = references(model, prompt, 8)[0][3]
    config, generation = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("config", "generation_config")
    )
    for held in (generation, config, config["text_config"]):
        held["eos_token_id"] = None
    {"generation_config": generation, "config": config, "text_config": config["text_config"]}[place][
        "eos_token_id"
    ] = [end, 1]
    (tmp_path / "config.json").write_text(json.dumps(config))
    if place == "generation_config":
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    else:
        (tmp_path / "generation_config.json").unlink()
    llm = load(tmp_path)
    assert set(llm._built.info.eos_token_ids) == {end, 1}
    assert (
        llm.generate(prompt, SamplingParams(temperature=0.0, max_tokens=8))[0].outputs[0].finish_reason
        == "stop"
    )


def test_lengths_are_the_texts(saved: Any) -> None:
    _, path = saved("mistral3")
    info = load(path)._built.info
    assert (info.max_model_len, info.vocab_size, info.hidden_size, info.num_layers) == (MAX_LEN, VOCAB, 32, 2)


@pytest.mark.parametrize("file", ["chat_template.jinja", "chat_template.json"])
def test_the_chat_template(file: str, tmp_path: Path, saved: Any) -> None:
    saved("mistral3")[0].save_pretrained(tmp_path)
    letter_tokenizer().save_pretrained(tmp_path)
    template = "{% for message in messages %}ab{{ message.content }}{% endfor %}"
    (tmp_path / file).write_text(
        json.dumps({"chat_template": template}) if file.endswith("json") else template
    )
    llm = LLM(str(tmp_path), dtype="float32", max_num_seqs=2)
    parts = [{"type": "text", "text": "cdef"}]
    output = llm.chat([{"role": "user", "content": parts}], greedy(2))[0]
    assert output.prompt_token_ids == letter_tokenizer()("abcdef")["input_ids"]
    parts.append({"type": "image_url", "image_url": {"url": "http://localhost/a.png"}})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="image_url"):
        llm.chat([{"role": "user", "content": parts}], greedy(2))


def test_a_map_with_one_device(saved: Any) -> None:
    model, path = saved("gemma3")
    many = prompts([20])
    assert tokens_of(load(path, device_map="auto"), many, greedy(8)) == references(model, many, 8)


def test_several_devices_are_refused() -> None:
    model = whole(SERVED["llava"]())
    model.hf_device_map = {"model.language_model": 0, "lm_head": "cpu"}
    with pytest.raises(
        ModelError, match=r"multimodal model spread over cpu, cuda:0: .* tensor_parallel_size"
    ):
        load(model)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    config, reason = REFUSED[name]
    whole(config()).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=reason):
        load(tmp_path)
