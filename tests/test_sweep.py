"""Causal classes of the installed `transformers`: each gives the text of its own `generate`, or is refused with the reason.

Tiny models of random weights in float32; prompts longer than any window; plain, n-grams, trees (chains where layers keep
states), hostile drafts, and a cache that is too small. Classes with a configuration in `test_identity_tiny.py`,
`test_identity_hybrids.py` or the tests of multimodal models are tried there too, in more ways.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from speccheck.causal import NAMES, configured, tiny_config
from speccheck.identity import reference
from speccheck.models import WINDOW
from speccheck.sweep import MAX_TOKENS, PROMPTS, check, refusal, tiny

from specdec import LLM, ModelError

IDENTICAL = (
    "axk1",
    "cwm",
    "gemma3n_text",
    "gemma4_unified_text",
    "gpt-sw3",
    "granitemoe_swa",
    "hunyuan_v1_moe",
    "hy_v3",
    "hyperclovax",
    "iquestcoder",
    "jais2",
    "jetmoe",
    "kolibri1",
    "laguna",
    "mellum",
    "mimo_v2_flash",
    "minicpm3",
    "minimax_m3_vl_text",
    "ministral",
    "modernbert-decoder",
    "nanochat",
    "roberta",
    "roberta-prelayernorm",
    "solar_open",
    "vaultgemma",
    "xlm-roberta",
    "xlm-roberta-xl",
    "youtu",
    "afmoe",
    "apertus",
    "arcee",
    "aria_text",
    "bailing_hybrid",
    "bamba",
    "beam",
    "bert",
    "bert-generation",
    "bitnet",
    "camembert",
    "cohere2_moe",
    "ctrl",
    "data2vec-text",
    "electra",
    "ernie",
    "exaone_moe",
    "flex_olmo",
    "flint",
    "granite_swa",
    "granitemoeshared",
    "internlm3",
    "cohere_compass_text",
    "dbrx",
    "emu3",
    "fuyu",
    "got_ocr2",
    "moshi",
    "moss_transcribe_diarize",
    "persimmon",
    "qwen3_5_moe",
    "roc_bert",
)

REFUSED: dict[str, tuple[str, ...]] = {
    "layers of type indexed_attention": (
        "axk2",
        "deepseek_v32",
        "dots3_note",
        "dots3_note_text",
        "glm_moe_dsa",
        "hy_v4",
        "qwen4_exp",
        "qwen4_exp_text",
    ),
    "does not use transformers' attention interface": (
        "gpt_neo",
        "bart",
        "big_bird",
        "bigbird_pegasus",
        "biogpt",
        "blenderbot",
        "blenderbot-small",
        "bloom",
        "blt",
        "codegen",
        "cpmant",
        "falcon",
        "gpt_neox_japanese",
        "gptj",
        "marian",
        "mbart",
        "megatron-bert",
        "mpt",
        "mvp",
        "openai-gpt",
        "pegasus",
        "plbart",
        "prophetnet",
        "reformer",
        "rembert",
        "roformer",
        "stablelm",
        "trocr",
        "whisper",
        "xglm",
        "xlm",
        "xlnet",
    ),
    "layers of type heavily_compressed_attention": ("deepseek_v4",),
    "calls attention more than once": ("diffllama",),
    "builds an attention mask of its own": ("doge",),
    "do not call transformers' attention interface": ("mllama",),
    "serves text only": ("git", "phi4_multimodal"),
    "decoder layers found": ("hrm_text", "longcat_flash"),
    "which specdec does not know; ignoring it": ("inkling2_text", "inkling_text"),
    "otherwise than in the cache of transformers": ("minimax",),
    "keep their states in the modules": ("recurrent_gemma",),
    "keeps recurrent state elsewhere": ("rwkv", "xlstm"),
    "Input language unknown": ("xmod",),
}
"""Classes, by what their error says."""

NOT_MADE: dict[str, tuple[str, ...]] = {
    "is an encoder-decoder model": ("musicgen", "musicgen_melody"),
    "layer types producing a cache is different": ("gemma4_assistant", "gemma4_unified_assistant"),
    "requires the (timm|PIL) library": ("gemma3n",),
}
"""Classes that `transformers` makes no model of from their own configuration, by what their load says."""

_WHY = {name: reason for reason, names in REFUSED.items() for name in names}
_WHY_NOT_MADE = {name: reason for reason, names in NOT_MADE.items() for name in names}

_ASSISTANT = "cannot run as it is configured"
SINCE_5_24 = {
    **dict.fromkeys(
        ("apertus1p5_text", "codegen", "exaone", "gptj", "lara_mini", "sarvam_mla", "sarvam_moe")
    ),
    "dory": "calls attention more than once",
    "gemma4_assistant": _ASSISTANT,
    "gemma4_unified_assistant": _ASSISTANT,
    "inkling2_loop_text": "which specdec does not know; ignoring it",
}
"""What is new or changed since `transformers` 5.24: what the error of a class says; None: it is served."""

if tuple(map(int, version("transformers").split(".")[:2])) >= (5, 24):
    IDENTICAL = (*IDENTICAL, *(name for name, reason in SINCE_5_24.items() if reason is None))
    _WHY = {name: reason for name, reason in {**_WHY, **SINCE_5_24}.items() if reason is not None}
    _WHY_NOT_MADE = {name: reason for name, reason in _WHY_NOT_MADE.items() if name not in SINCE_5_24}

CONFIGURED = tuple(sorted({*NAMES} & {*configured()} - {*IDENTICAL, *_WHY, *_WHY_NOT_MADE}))
"""Classes whose configuration other tests have; they are identical too."""


def test_every_class_is_tried() -> None:
    ours = [*IDENTICAL, *_WHY, *_WHY_NOT_MADE]
    assert len(ours) == len(set(ours))
    assert set(ours) <= set(NAMES) == {*ours, *CONFIGURED}


@pytest.mark.full
@pytest.mark.parametrize("name", [*IDENTICAL, *CONFIGURED])
def test_text_is_that_of_transformers(name: str) -> None:
    model = tiny(name)
    assert refusal(model) is None
    check(model)


@pytest.mark.full
@pytest.mark.parametrize("name", _WHY)
def test_refused_with_the_reason(name: str) -> None:
    told = refusal(tiny(name))
    assert told is not None
    assert _WHY[name] in told


@pytest.mark.full
@pytest.mark.parametrize("name", _WHY_NOT_MADE)
def test_a_folder_says_why_it_is_not_loaded(tmp_path: Path, name: str) -> None:
    tiny_config(name).save_pretrained(tmp_path)
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=_WHY_NOT_MADE[name]):
        LLM(model=str(tmp_path), skip_tokenizer_init=True)


def test_a_window_that_the_cache_alone_has() -> None:
    """Moshi's layers attend to everything, and the cache of `generate` forgets: beyond the window these are two texts."""
    model = tiny("moshi")
    model.config.sliding_window = WINDOW
    text = PROMPTS[1]
    for _ in range(MAX_TOKENS):
        text = [*text, int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax())]
    assert text != [*PROMPTS[1], *reference(model, PROMPTS[1], MAX_TOKENS)]
    assert f"max_model_len={WINDOW} or less" in str(refusal(model))
