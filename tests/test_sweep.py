"""Causal classes of the installed `transformers`: each gives the text of its own `generate`, or is refused with the reason.

Tiny models of random weights in float32; prompts longer than any window; plain, n-grams, trees (chains where layers keep
states), hostile drafts, and a cache that is too small. Classes with a configuration in `test_identity_tiny.py`,
`test_identity_hybrids.py` or the tests of multimodal models are tried there, in more ways.
"""

from __future__ import annotations

import pytest
from speccheck.causal import NAMES, configured
from speccheck.sweep import check, refusal, tiny

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
)

REFUSED: dict[str, tuple[str, ...]] = {
    "whose text would not be that of transformers": ("moshi",),
    "layers of type indexed_attention": ("axk2", "deepseek_v32", "dots3_note_text", "glm_moe_dsa", "hy_v4"),
    "does not use transformers' attention interface": (
        "gpt_neo",
        "bart",
        "big_bird",
        "bigbird_pegasus",
        "biogpt",
        "blenderbot",
        "blenderbot-small",
        "bloom",
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
    "serves text only": ("git",),
    "decoder layers found": ("hrm_text", "longcat_flash"),
    "which specdec does not know; ignoring it": ("inkling2_text", "inkling_text"),
    "otherwise than in the cache of transformers": ("minimax",),
    "keep their states in the modules": ("recurrent_gemma",),
    "keeps recurrent state elsewhere": ("rwkv", "xlstm"),
    "Input language unknown": ("xmod",),
}
"""Classes, by what their error says."""

MOST_UNTRIED = 21
"""A change lowers it."""

_WHY = {name: reason for reason, names in REFUSED.items() for name in names}


def untried() -> list[str]:
    """Return the classes that no test tries yet: most need a tiny configuration of their own."""
    tried = {*IDENTICAL, *_WHY, *configured()}
    return [name for name in NAMES if name not in tried]


def test_every_class_is_known_of() -> None:
    assert not set(IDENTICAL) & set(_WHY)
    assert {*IDENTICAL, *_WHY} <= set(NAMES)
    assert len(untried()) <= MOST_UNTRIED


@pytest.mark.full
@pytest.mark.parametrize("name", IDENTICAL)
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
