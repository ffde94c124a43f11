from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_gguf import END, END_OF_TURN, TEMPLATE, tiny_llama, write_gguf
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from specdec.errors import ModelError
from specdec_runtime.gguf import convert as convert_module
from specdec_runtime.gguf.convert import convert
from specdec_runtime.gguf.positions import _LLAMA3, _llama3_factors


def made(tmp_path: Path, dtype: str = "float32", **how: Any) -> Path:
    folder = tmp_path / f"out-{dtype}"
    folder.mkdir()
    convert(write_gguf(tmp_path / "m.gguf", **how), dtype, folder)
    return folder


def refusal(tmp_path: Path, **how: Any) -> str:
    with pytest.raises(ModelError) as caught:
        made(tmp_path, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(torch.arange(4, 40)[None]).logits
    return found


def test_weights_are_those_that_were_written(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(folder)), logits(tiny_llama()))


def test_blocks_are_dequantised_as_transformers_does_it_then_rounded_to_the_dtype(tmp_path: Path) -> None:
    folder = made(tmp_path, kind="Q8_0")
    straight = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="m.gguf",
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    ).state_dict()
    kept = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert kept.keys() == straight.keys()
    assert all(torch.equal(kept[name], straight[name]) for name in straight)
    rounded = AutoModelForCausalLM.from_pretrained(made(tmp_path, "bfloat16", kind="Q8_0")).state_dict()
    assert all(torch.equal(rounded[name], straight[name].bfloat16()) for name in straight)


def test_a_text_ends_where_the_file_says(tmp_path: Path) -> None:
    folder = made(tmp_path)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [END, END_OF_TURN]
    assert AutoConfig.from_pretrained(folder).eos_token_id == [END, END_OF_TURN]
    (tmp_path / "one").mkdir()
    alone = made(tmp_path / "one", end_of_turn=None)
    assert json.loads((alone / "generation_config.json").read_text())["eos_token_id"] == END


def test_the_tokenizer_and_its_chat_template_come_along(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made(tmp_path))
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token_id == END
    assert tokenizer("the<|im_end|>").input_ids == [tokenizer.convert_tokens_to_ids("the"), END]
    # Each digit by itself, so that the blanks before it stay together.
    assert tokenizer.convert_ids_to_tokens(tokenizer("  5").input_ids) == ["ĠĠ", "5"]


def test_an_unknown_way_of_splitting_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="specdec"):
        made(tmp_path, pre="qwen2")
    assert caplog.text == ""
    (tmp_path / "unknown").mkdir()
    made(tmp_path / "unknown", pre="martian")
    assert "how its tokenizer ('martian') splits text is not known to transformers" in caplog.text


def test_the_position_scaling_of_llama_3(tmp_path: Path) -> None:
    model = tiny_llama()
    model.config.rope_parameters["rope_theta"] = 5e5
    factors = _llama3_factors(4, 5e5, {"factor": 8.0, **_LLAMA3})
    parameters = AutoConfig.from_pretrained(made(tmp_path, model=model, rope_factors=factors)).rope_parameters
    assert parameters == {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, **_LLAMA3}


def test_llama_3_factors_are_those_of_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {"factor": 32.0, **_LLAMA3}
    config = LlamaConfig(head_dim=64, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **scaling})
    scaled = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0].double().numpy()
    plain = 5e5 ** -(np.arange(32) / 32)
    np.testing.assert_allclose(plain / scaled, _llama3_factors(32, 5e5, scaling), rtol=1e-5)


def test_position_scaling_that_would_be_lost_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path, rope_factors=np.array([1.0, 2.0, 3.0, 4.0]))
    assert "by factors (rope_freqs.weight) that are not those of Llama 3.1" in told
    (tmp_path / "yarn").mkdir()
    assert "scales positions (rope.scaling.type 'yarn')" in refusal(tmp_path / "yarn", rope_scaling="yarn")


def test_what_transformers_cannot_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    told = refusal(tmp_path, architecture="rwkv6")
    assert told == (
        f"transformers cannot read {tmp_path / 'm.gguf'}: GGUF model with architecture rwkv6 is not supported yet"
    )


def test_a_missing_tensor_is_not_left_random(tmp_path: Path) -> None:
    told = refusal(tmp_path, without="blk.1.attn_q.weight")
    assert "tensors of LlamaForCausalLM 1 missing, 'model.layers.1.self_attn.q_proj.weight':" in told


@pytest.mark.parametrize(
    ("share", "reason"),
    [
        (0.02, "it ends within its header"),
        (0.3, "transformers cannot read"),
        (0.9, "transformers cannot read"),
    ],
)
def test_a_file_that_is_cut_short(tmp_path: Path, share: float, reason: str) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ModelError, match=reason):
        convert(file, "float32", folder)
    assert list(folder.iterdir()) == []


def test_nothing_is_drawn_in_a_pipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    assert capfd.readouterr().err == ""


def test_what_is_logged_meanwhile_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = convert_module._read

    def read(*given: Any, **options: Any) -> Any:
        print("still loading", file=sys.stderr)
        return reading(*given, **options)

    monkeypatch.setattr(convert_module, "_read", read)
    made(tmp_path)
    assert capfd.readouterr().err == "still loading\n"
