"""Chat: the template writes the special tokens, once."""

from __future__ import annotations

import pytest
from speccheck.engines import greedy, letter_tokenizer, make_llm
from tokenizers.processors import TemplateProcessing

from specdec import ConfigError

MESSAGES = [{"role": "user", "content": "abcd"}, {"role": "assistant", "content": "ka"}]


@pytest.fixture
def tokenizer():
    """Puts `aa` in front of every text, and so does its chat template."""
    made = letter_tokenizer()
    made.add_special_tokens({"bos_token": "aa"})
    made.backend_tokenizer.post_processor = TemplateProcessing(single="aa $A", special_tokens=[("aa", 0)])
    made.chat_template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return made


def test_the_prompt_is_what_the_template_makes_of_it(subject, tokenizer) -> None:
    llm = make_llm(subject.model, tokenizer=tokenizer)
    assert tokenizer("abcd")["input_ids"][0] == 0
    wanted = tokenizer.apply_chat_template(MESSAGES, tokenize=True, return_dict=True)["input_ids"]
    one, other = llm.chat([MESSAGES, MESSAGES[:1]], greedy(2))
    assert one.prompt_token_ids == wanted
    assert other.prompt_token_ids == wanted[:-1]
    assert one.prompt == "aaabcdka"
    assert llm.chat(MESSAGES, greedy(2))[0].outputs[0].token_ids == one.outputs[0].token_ids


def test_without_a_template_there_is_no_chat(subject) -> None:
    with pytest.raises(ConfigError, match="chat template"):
        make_llm(subject.model, tokenizer=letter_tokenizer()).chat(MESSAGES)
