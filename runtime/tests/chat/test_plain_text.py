"""Special tokens that messages spell stay text, whatever the template looks like; prompts that are too long are refused."""

from __future__ import annotations

from typing import Any

import pytest
from speccheck.engines import greedy, letter_tokenizer, make_llm
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec import ConfigError
from specdec.frontend.prompts import PromptLength
from specdec_runtime.chat.conversation import conversation_prompt

TEMPLATES = {
    "chatml": (
        ["<|im_start|>", "<|im_end|>"],
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    "headers": (
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m['content'] }}<|eot_id|>{% endfor %}",
    ),
    "brackets": (
        ["<s>", "</s>", "[INST]", "[/INST]"],
        "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}",
    ),
    "turns": (
        ["<bos>", "<start_of_turn>", "<end_of_turn>"],
        "<bos>{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}",
    ),
    "beginnings": (
        ["<|end|>", "<|end|>."],
        "{% for m in messages %}{{ m.content }}<|end|>.{% endfor %}",
    ),
    "roles": (
        ["<|user|>", "<|assistant|>", "<|end|>"],
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    ),
}


def byte_tokenizer(special: list[str], template: str, *, metaspace: bool = False) -> PreTrainedTokenizerFast:
    """Knows single bytes, or single characters behind a prefix for words."""
    if metaspace:
        letters = {chr(i) for i in range(33, 127)} | {"\n", "\u2581"}
        made = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(letters))}, []))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        made.decoder = decoders.Metaspace()
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        made.normalizer = normalizers.NFC()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("metaspace", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_special_tokens_in_messages_stay_text(name: str, metaspace: bool) -> None:
    special, template = TEMPLATES[name]
    tokenizer = byte_tokenizer(special, template, metaspace=metaspace)
    real = set(tokenizer.convert_tokens_to_ids(special))

    def prompt(text: str) -> tuple[str, list[int]]:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "no"}]
        made = conversation_prompt(tokenizer, messages, {})
        return made["prompt"], made["prompt_token_ids"]

    usual_text, usual = prompt("hi there")
    assert usual == tokenizer(usual_text, add_special_tokens=False)["input_ids"]
    text, ids = prompt(f"hi {''.join(special)} there {special[-1]}")
    assert [i for i in ids if i in real] == [i for i in usual if i in real]
    assert text == usual_text.replace("hi there", f"hi {''.join(special)} there {special[-1]}")
    assert tokenizer.decode(ids) == text.replace("\u2581", " ")
    # What is not a special token is tokenized as it always is.
    same = [i for i in ids if i not in real][: len("hi ")]
    assert same == [i for i in usual if i not in real][: len("hi ")]


def test_roles_tools_and_arguments_are_messages_too() -> None:
    special, template = TEMPLATES["chatml"]
    tokenizer = byte_tokenizer(special, template + "{{ hint }}")
    tools = [{"type": "function", "function": {"name": "f", "description": "a <|im_end|> b"}}]
    given: dict[str, Any] = {"hint": "<|im_start|>", "tools": tools}
    messages = [{"role": "user<|im_start|>", "content": "x"}]
    made = conversation_prompt(tokenizer, messages, given)
    real = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert [i for i in made["prompt_token_ids"] if i in real] == [real[0], real[1], real[0]]
    assert "a <|im_end|> b" in made["prompt"]
    assert tokenizer.decode(made["prompt_token_ids"]) == made["prompt"]


def test_characters_for_private_use_are_kept() -> None:
    tokenizer = byte_tokenizer(*TEMPLATES["chatml"])
    text = "".join(map(chr, range(0xF0000, 0xF0006))) + "<|im_end|>"
    made = conversation_prompt(tokenizer, [{"role": "user", "content": text}], {})
    assert text in made["prompt"]
    assert tokenizer.decode(made["prompt_token_ids"]) == made["prompt"]


def test_prompts_that_are_too_long_are_not_tokenized(model) -> None:
    tokenizer = letter_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    llm = make_llm(model, tokenizer=tokenizer, max_model_len=50)
    long = "a" * 801
    with pytest.raises(ConfigError, match=r"801 characters.*at most 800"):
        llm.generate(long, greedy(2))
    with pytest.raises(ConfigError, match="801 characters"):
        llm.chat([{"role": "user", "content": long}], greedy(2))
    PromptLength(tokenizer, 50).check("a" * 800)
    cut = greedy(2).model_copy(update={"truncate_prompt_tokens": 4})
    assert len(llm.generate(long, cut)[0].prompt_token_ids) == 4
