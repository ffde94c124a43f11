"""Chat: the template writes the special tokens, once."""

from __future__ import annotations

import pytest
from speccheck.engines import greedy, letter_tokenizer, make_llm
from tokenizers.processors import TemplateProcessing

from specdec import LLM, ConfigError
from specdec_runtime.chat.message_content import checked_message

MESSAGES = [{"role": "user", "content": "abcd"}, {"role": "assistant", "content": "ka"}]


@pytest.fixture
def tokenizer():
    """Puts `aa` in front of every text, and so does its chat template."""
    made = letter_tokenizer()
    made.add_special_tokens({"bos_token": "aa"})
    made.backend_tokenizer.post_processor = TemplateProcessing(single="aa $A", special_tokens=[("aa", 0)])
    made.chat_template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return made


def test_the_prompt_is_what_the_template_makes_of_it(model, tokenizer) -> None:
    llm = make_llm(model, tokenizer=tokenizer)
    assert tokenizer("abcd")["input_ids"][0] == 0
    wanted = tokenizer.apply_chat_template(MESSAGES, tokenize=True, return_dict=True)["input_ids"]
    one, other = llm.chat([MESSAGES, MESSAGES[:1]], greedy(2))
    assert one.prompt_token_ids == wanted
    assert other.prompt_token_ids == wanted[:-1]
    assert one.prompt == "aaabcdka"
    assert llm.chat(MESSAGES, greedy(2))[0].outputs[0].token_ids == one.outputs[0].token_ids


def test_without_a_template_there_is_no_chat(model) -> None:
    with pytest.raises(ConfigError, match="chat template"):
        make_llm(model, tokenizer=letter_tokenizer()).chat(MESSAGES)


PLAIN = (
    "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}"
    "{% if thinking is defined %}{{ thinking }}{% endif %}{% if tools %}{{ tools[0].name }}{% endif %}"
    "{% if add_generation_prompt %}:{% endif %}"
)
"""Writes content as it is, as most templates of text models do."""
IN_PARTS = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}|{% endfor %}"
)
"""Takes text and parts, as templates of vision models do."""
ONLY_PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}|{% endfor %}"
PARTS = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
USER = [{"role": "user", "content": "abcd"}]


@pytest.fixture(scope="module")
def talking(model) -> LLM:
    """Has a template that takes text."""
    made = letter_tokenizer()
    made.chat_template = PLAIN
    return make_llm(model, tokenizer=made)


def prompt_of(llm: LLM, messages, **options) -> str:
    [output] = llm.chat(messages, greedy(1), **options)
    return output.prompt


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({"chat_template_kwargs": {"thinking": "ab"}}, "<u>abcdab:"),
        ({"thinking": "ab"}, "<u>abcdab:"),
        ({"add_generation_prompt": False}, "<u>abcd"),
        ({"continue_final_message": True}, "<u>abcd"),
        ({"tools": [{"name": "f"}]}, "<u>abcdf:"),
        ({"chat_template": "{{ messages[0].content }}kk"}, "abcdkk"),
        ({"lora_request": None, "mm_processor_kwargs": {}, "use_tqdm": False}, "<u>abcd:"),
    ],
)
def test_every_option_does_what_it_does_in_vllm(talking: LLM, options: dict, prompt: str) -> None:
    assert prompt_of(talking, USER, **options) == prompt


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lora_request": "a"}, "lora_request = 'a' needs LLM\\(enable_lora=True\\)"),
        ({"mm_processor_kwargs": {"a": 1}}, "chat: 'mm_processor_kwargs' = {'a': 1} is not supported"),
        ({"add_generation_promt": False}, "'add_generation_promt' .*: did you mean 'add_generation_prompt'"),
        ({"chat_template_kwargs": {"thinkin": 1}}, "'thinkin' is not .*: did you mean 'thinking'"),
        ({"chat_template_kwargs": {"tokenize": True}}, "'tokenize' is not a template variable"),
        ({"chat_template_kwargs": {"messages": []}}, "'messages' is not a template variable"),
        ({"chat_template_kwargs": {1: 2}}, "1 is not a template variable"),
        ({"chat_template_kwargs": "thinking"}, "chat_template_kwargs = 'thinking' must be a mapping"),
        ({"chat_template_content_format": "json"}, "chat_template_content_format = 'json' must be"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "both true"),
        ({"chat_template": "{{ messages }}", "tools": [{"name": "f"}]}, "tools: the chat template does not"),
        ({"chat_template": "{{ thinking }}", "tools": [{"name": "f"}]}, "tools: the chat template does not"),
        (
            {"chat_template": "{{ tokenize }}", "chat_template_kwargs": {"tokenize": 1}},
            "'tokenize' is not a template",
        ),
        ({"chat_template": "{% if %}", "thinking": 1}, "the chat template cannot be read"),
    ],
)
def test_an_option_without_effect_is_refused_by_name(talking: LLM, options: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        talking.chat(USER, greedy(1), **options)


@pytest.mark.parametrize("call", ["generate", "chat"])
def test_calls_have_the_arguments_of_vllm(talking: LLM, call: str) -> None:
    prompts = {"generate": [[5, 9]], "chat": USER}[call]
    with pytest.raises(ConfigError, match="lora_request = 'a' needs LLM"):
        getattr(talking, call)(prompts, greedy(1), lora_request="a")
    with pytest.raises(ConfigError, match="2 priority for 1 prompts"):
        getattr(talking, call)(prompts, greedy(1), priority=[1, 2])
    with pytest.raises(ConfigError, match="priority = 'a' must be an integer"):
        getattr(talking, call)(prompts, greedy(1), priority=["a"])
    with pytest.raises(ConfigError, match="priority = 1 has no effect"):
        getattr(talking, call)(prompts, greedy(1), priority=[1])
    with pytest.raises(
        ConfigError, match="'use_tqm'.*did you mean 'use_tqdm'" if call == "generate" else "'use_tqm'"
    ):
        getattr(talking, call)(prompts, greedy(1), use_tqm=True)


@pytest.mark.parametrize(
    ("template", "form", "prompt"),
    [
        (PLAIN, "auto", "<u>ab\ncd<a>kk"),
        (PLAIN, "string", "<u>ab\ncd<a>kk"),
        (IN_PARTS, "auto", "abcd|kk|"),
        (IN_PARTS, "string", "ab\ncd|kk|"),
        (ONLY_PARTS, "openai", "abcd|kk|"),
    ],
)
def test_text_parts_are_the_text_of_a_message(talking: LLM, template: str, form: str, prompt: str) -> None:
    messages = [{"role": "user", "content": PARTS}, {"role": "assistant", "content": "kk"}]
    options = {"chat_template": template, "chat_template_content_format": form}
    assert prompt_of(talking, messages, add_generation_prompt=False, **options) == prompt


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("abcd", "messages must be a list of messages or of such lists, not str"),
        (USER[0], "messages must be a list of messages or of such lists, not dict"),
        ([[]], "at least one message"),
        ([USER, ["ab"]], r"conversations\[1\]: messages\[0\] must be a mapping with role and content, not str"),
        ([{"content": "ab"}], r"messages\[0\] has no role"),
        ([{"role": "user", "content": 5}], r"messages\[0\]: content must be text or a list of parts, not int"),
        ([{"role": "user", "content": None}], r"messages\[0\]: content is null"),
        ([*USER, {"role": "tool", "content": None}], r"messages\[1\]: content is null; a message of the role 'tool'"),
        ([*USER, {"role": "user", "content": [{"type": "image_url", "text": "x"}]}], r"messages\[1\]: .*'image_url'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\]: a part of type 'text' is not"),
    ],
)  # fmt: skip
def test_messages_of_no_text_are_named(talking: LLM, messages, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        talking.chat(messages, greedy(1))


def test_a_message_of_an_assistant_may_be_null() -> None:
    """The text is empty, or what it says is in its calls."""
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for message in ({"role": "assistant"}, {"role": "assistant", "content": None, "tool_calls": []}):
        assert checked_message(message, "m")["content"] == ""
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    assert checked_message(asked, "m") == asked
