"""GGUF files end to end: as target, as draft, and SmolLM2 from its package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_gguf import tiny_llama, write_gguf
from transformers import AutoModelForCausalLM, GgufConfig

import specdec_zoo
from specdec import LLM, ConfigError, ModelError, SamplingParams
from specdec.config import TargetFacts, parse_speculative_config
from specdec.folders import compiled_folder

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
PROMPT = {"prompt_token_ids": [5, 9, 40, 41, 42, 9, 40]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for dequantised models; compiled code is kept where it was."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(compiled_folder()))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ids(llm: LLM, prompt: object = PROMPT) -> list[int]:
    output = llm.generate(prompt, GREEDY)[0]  # type: ignore[arg-type]  # text or ids
    return list(output.outputs[0].token_ids)


def expected(prompt: list[int], seed: int = 0) -> list[int]:
    text = tiny_llama(seed).generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=24, eos_token_id=None, pad_token_id=0
    )
    return list(text[0, len(prompt) :].tolist())


def test_a_file_as_target_and_draft(tmp_path: Path) -> None:
    target = write_gguf(tmp_path / "target.gguf")
    llm = LLM(str(target), dtype="float32")
    assert ids(llm) == expected([5, 9, 40, 41, 42, 9, 40])
    assert (
        llm.get_tokenizer().apply_chat_template([{"content": "x"}], tokenize=False)
        == "<|im_start|>x<|im_end|>"
    )
    speculation = {"method": "draft_model", "model": str(target), "num_speculative_tokens": 3}
    drafting = LLM(str(target), dtype="float32", speculative_config=speculation)
    assert ids(drafting) == ids(llm)
    counted = {metric.name: metric for metric in drafting.get_metrics()}
    assert counted["vllm:spec_decode_num_accepted_tokens"].value > 12  # type: ignore[attr-defined]  # a counter


def test_a_draft_of_its_own_is_dequantised_to_the_targets_dtype(tmp_path: Path, cache: Path) -> None:
    target = write_gguf(tmp_path / "target.gguf")
    (tmp_path / "drafts").mkdir()
    draft = write_gguf(tmp_path / "drafts" / "draft.gguf", tiny_llama(seed=1), kind="Q8_0")
    speculation = {"model": str(draft.parent), "num_speculative_tokens": 3}
    llm = LLM(str(target), dtype="float32", speculative_config=speculation)
    assert ids(llm) == expected([5, 9, 40, 41, 42, 9, 40])
    assert sorted(path.name.rsplit("-", 1)[0] for path in (cache / "models").glob("[dt]*-*")) == [
        "draft-float32",
        "target-float32-blocks",
    ]


def test_one_of_several_files(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf", tiny_llama(seed=1))
    with pytest.raises(ConfigError, match=r"has several GGUF files, .* gguf_file=: a.gguf, b.gguf"):
        LLM(str(tmp_path))
    assert ids(LLM(str(tmp_path), gguf_file="b.gguf", dtype="float32")) == expected(
        [5, 9, 40, 41, 42, 9, 40], seed=1
    )


def test_a_broken_draft_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "draft.gguf").write_bytes(b"GGUF")
    with pytest.raises(
        ConfigError, match=r"speculative_config: 'model': .*draft.gguf is not a GGUF file, or is damaged"
    ):
        LLM("zoo", speculative_config={"model": str(tmp_path / "draft.gguf"), "num_speculative_tokens": 2})


def test_a_file_that_transformers_cannot_read(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", architecture="rwkv6")
    with pytest.raises(ModelError, match="architecture rwkv6 is not supported yet"):
        LLM(str(file))


@pytest.mark.slow
def test_smollm2_says_what_transformers_says_of_its_file() -> None:
    file = specdec_zoo.path("smollm2")
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    llm = LLM("smollm2", dtype="float32", max_model_len=256)
    answer = llm.chat(messages, SamplingParams(temperature=0.0, max_tokens=32))[0]
    straight = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    prompt = answer.prompt_token_ids
    text = straight.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=32)[0].tolist()
    assert text == [*prompt, *answer.outputs[0].token_ids]
    assert text[-1] == llm.get_tokenizer().convert_tokens_to_ids("<|im_end|>") == 2
    assert answer.outputs[0].finish_reason == "stop"
    assert "Paris" in answer.outputs[0].text


def test_the_zoos_drafts_are_chosen_for_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_zoo.artefacts._ROOT", tmp_path)
    for name in ("mlp", "smollm2_mlp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "mlp_speculator", "n_predict": 3}')
    chosen = {}
    for name, hidden_size in (("small", 256), ("smollm2", 576)):
        shape = {
            "model_type": "llama",
            "hidden_size": hidden_size,
            "num_hidden_layers": 30,
            "vocab_size": 49152,
        }
        facts = TargetFacts(None, shape)
        resolved = parse_speculative_config({"method": "mlp_speculator", "model": "zoo"}, target=facts)
        assert resolved is not None
        chosen[name] = resolved.config.model
    assert chosen == {"small": str(tmp_path / "mlp"), "smollm2": str(tmp_path / "smollm2_mlp")}
    with pytest.raises(ConfigError) as caught:
        parse_speculative_config({"method": "eagle3", "model": "zoo"}, target=facts)
    assert str(caught.value) == (
        "speculative_config: 'model': 'zoo': the zoo has no artefact 'smollm2_eagle3', which the target smollm2 needs; for "
        "that target it has: smollm2_mlp"
    )
