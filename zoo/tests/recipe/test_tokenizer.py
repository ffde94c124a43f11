"""The tokenizer: exact round trips, few tokens for indentation, chat messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from zoo_recipe.tokenizer import END_OF_TEXT, SPECIAL_TOKENS, encode, load_tokenizer, train_tokenizer

SOURCE = '''
class Thing:
    """A thing."""

    def __init__(self, value):
        self.value = value
        if value:
            return None


def main():
    for i in range(10):
        print(Thing(i))
'''

TOKENIZER = train_tokenizer([SOURCE] * 3, vocab_size=320, max_length=1024)


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\n\r_éß漢🙂\u0301\u2028x1(")), max_size=60
    )
)
def test_every_text_comes_back(text: str) -> None:
    (ids,) = encode(TOKENIZER, [text])
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER(text)["input_ids"] == ids


def test_indentation_is_one_token() -> None:
    assert TOKENIZER.tokenize("x\n        y") == ["x", "ĊĠĠĠĠĠĠĠĠ", "y"]
    assert TOKENIZER.tokenize("    y") == ["ĠĠĠĠ", "y"]


def test_size_and_special_tokens() -> None:
    assert len(TOKENIZER) == 320
    assert TOKENIZER.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    assert TOKENIZER.eos_token == TOKENIZER.bos_token == END_OF_TEXT
    assert TOKENIZER("a")["input_ids"] == encode(TOKENIZER, ["a"])[0], "nothing is added unasked"


def test_chat_template() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>Be brief.<|user|>Hi<|assistant|>Hello<|endoftext|><|user|>Bye<|assistant|>"
    without = TOKENIZER.apply_chat_template(messages[:2], tokenize=False)
    assert without == "<|system|>Be brief.<|user|>Hi"


def test_chat_template_refuses_unknown_roles() -> None:
    with pytest.raises(Exception, match="unknown role tool"):
        TOKENIZER.apply_chat_template([{"role": "tool", "content": ""}], tokenize=False)


def test_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    for loaded in (load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert isinstance(loaded, PreTrainedTokenizerFast)
        assert encode(loaded, [SOURCE]) == encode(TOKENIZER, [SOURCE])
        assert loaded.chat_template == TOKENIZER.chat_template
