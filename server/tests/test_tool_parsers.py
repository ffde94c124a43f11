"""Every parser on texts as models write them; each text cut at every position, and into single characters, gives the same."""

from pathlib import Path
from typing import Any

import pytest
from servercheck.parsing import CALL, CLOSE, LAST, SECTION, SEP, TOOLS, F, G, check, parsed, result

from specdec import ConfigError
from specdec_server.tools import CallArguments, CallStart, ToolParser, registry
from specdec_server.tools.json_list import JsonListParser
from specdec_server.tools.qwen_coder import QwenCoderParser
from specdec_server.tools.registry import TOOL_PARSERS, inferred, parser_class
from specdec_server.tools.section import KimiParser

XML = (
    '<tool_call>\n<function=f>\n<parameter=count>\n42\n</parameter>\n<parameter=text>\nline "1"\n\n</parameter>\n'
    '<parameter=where>\n{"x":\n 1}\n</parameter>\n<parameter=flag>True</parameter>\n<parameter=ratio>\nnull\n</parameter>\n'
    "</function>\n</tool_call>"
)
XML_CALL = ("f", '{"count": 42, "text": "line \\"1\\"\\n", "where": {"x": 1}, "flag": true, "ratio": null}')
THINK = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"

CASES: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("hermes", "Hello there \n", "Hello there \n", []),
    ("hermes", "a < b <tool_", "a < b <tool_", []),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", [F]),
    ("hermes", '\n<tool_call>{"name": "f", "arguments": {"a": 1}}', "", [F]),
    (
        "hermes",
        'So:<tool_call>{"arguments": {"a": "</tool_call> }\\""}, "name": "f"}</tool_call>\n'
        '<tool_call>{"name": "g"}</tool_call> done',
        "So:",
        [("f", '{"a": "</tool_call> }\\""}'), G],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}<tool_call>{"name": "g"}', "", [F, G]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1}}</tool_call>', "", [("f", '{"a": [1}}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "un', "", [("f", '{"a": "un')]),
    ("hermes", '<tool_call>{"name": "f", "argum', '<tool_call>{"name": "f", "argum', []),
    ("hermes", "<tool_call>{f: 1}</tool_call>", "<tool_call>{f: 1}</tool_call>", []),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "x"}</tool_call>', "", [("f", '"x"')]),
    ("hermes", '<tool_call>{"name": "g", "arguments": null}</tool_call>', "", [G]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}, "why": "}"}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"why": [{"name": "x"}], "name": "f", "arguments": {"a": 1}}</tool_call>.', "", [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}, "parameters": {"b": 2}}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1},}</tool_call><tool_call>{"name": "g"}</tool_call>', "", [F, G]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}', "", [F]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "東 \\ud83d\\ude00"}}</tool_call>',
        "",
        [("f", '{"a": "東 \\ud83d\\ude00"}')],
    ),
    (
        "hermes",
        "<tool_call>{'name': 'f', 'arguments': {}}</tool_call>",
        "<tool_call>{'name': 'f', 'arguments': {}}</tool_call>",
        [],
    ),
    ("llama3_json", 'Use {braces} and {"b": [1]}.', 'Use {braces} and {"b": [1]}.', []),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "arguments": {}}', "", [F, G]),
    ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {"a": 1}} I used {f}: {"a": 1}', "", [F]),
    ("llama3_json", 'Here: {"type": "function", "name": "f", "parameters": {"a": 1}}', "Here: ", [F]),
    ("llama3_json", '{"name": "f", "parameters": {bad}', '{"name": "f", "parameters": {bad}', []),
    ("llama3_json", '{"name": "f"}', '{"name": "f"}', []),
    ("llama3_json", '{"parameters": {}}', '{"parameters": {}}', []),
    ("llama3_json", '{"name": "Bo", "age": 3} {x}', '{"name": "Bo", "age": 3} {x}', []),
    ("llama3_json", '{"answer": {"name": "f", "parameters": {}}}', '{"answer": {"name": "f", "parameters": {}}}', []),
    ("llama3_json", '{"parameters": {"a": 1}, "name": "f"};{"name": "g", "about": "{", "parameters": {}}', "", [F, G]),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}\n{"name": "g", "parameters": {}} ; ', "", [F, G]),
    ("llama3_json", '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]', "", [F, G]),
    ("llama3_json", 'A [link] and [{"b": 1}]', 'A [link] and [{"b": 1}]', []),
    ("llama3_json", '{"name": "f", "parameters": {"a": "{\\"b\\": [}] \\"}"}}', "", [("f", '{"a": "{\\"b\\": [}] \\"}"}')]),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments":{"a": 1}}, {"arguments": {}, "name": "g"}]\nmore', "", [F, G]),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments":{"a": 1}, "k": [1]}, {"id": "x", "name": "g", "arguments": {}}]',
        "",
        [F, G],
    ),
    ("mistral", 'Well[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}', "Well", [F, G]),
    ("mistral", '[TOOL_CALLS]f{"a": "[TOOL_CALLS]"}', "", [("f", '{"a": "[TOOL_CALLS]"}')]),
    ("mistral", "[TOOL_CALLS] no call", "no call", []),
    ("mistral", "[TOOL_CALLS] [no call]", "[no call]", []),
    ("mistral", '[TOOL_CALLS] So: [{"name": "f", "arguments": {"a": 1}}] more', "So: ", [F]),
    ("mistral", '[TOOL_CALLS][{"name": "g"}][TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', "", [G, F]),
    ("qwen3_coder", XML, "", [XML_CALL]),
    ("qwen3_coder", f"Sure.\n{XML}\n{XML}", "Sure.\n", [XML_CALL, XML_CALL]),
    ("qwen3_coder", "<function=g>\n</function>", "", [G]),
    (
        "qwen3_coder",
        "<tool_call><function=f\n</function></tool_call><tool_call><function=g></function></tool_call>",
        "<tool_call><function=f\n</function></tool_call>",
        [G],
    ),
    ("qwen3_coder", "<tool_call>no</tool_call>", "<tool_call>no</tool_call>", []),
    ("qwen3_coder", "<tool_call><function=f><parameter=text>\na\nb", "", [("f", '{"text": "a\\nb')]),
    (
        "qwen3_coder",
        "<tool_call><function=f><parameter=count>\n1\n<parameter=text>b\n</function></tool_call>",
        "",
        [("f", '{"count": 1, "text": "b"}')],
    ),
    (
        "deepseek_v3",
        f'I do.{SECTION}{CALL}function{SEP}f\n```json\n{{"a": 1}}\n```{CLOSE}\n'
        f"{CALL}function{SEP}g\n```json\n{{}}\n```{CLOSE}{LAST}",
        "I do.",
        [F, G],
    ),
    ("deepseek_v3", f'{SECTION}{CALL}function{SEP}f\n```json\n{{"a": "```"', "", [("f", '{"a": "```"')]),
    ("deepseek_v31", f'{SECTION}{CALL}f{SEP}{{"a": 1}}{CLOSE}{CALL}g{SEP}{{}}{CLOSE}', "", [F, G]),
    ("deepseek_v31", f"{CALL}f{CLOSE}", f"{CALL}f{CLOSE}", []),
    ("deepseek_v31", f"Ok{SECTION} hm\n{CALL}g{SEP}{{}}{CLOSE} hm{LAST}", "Ok", [G]),
    ("deepseek_v31", f"Ok{SECTION} f{SEP}{LAST} so", f"Ok f{SEP} so", []),
    ("deepseek_v31", f"{SECTION} f{SEP}", f" f{SEP}", []),
    ("deepseek_v31", f'{SECTION}{CALL}f{SEP}{{"a": 1}}{LAST} so', "", [F]),
    (
        "kimi_k2",
        "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
        "Ok",
        [F],
    ),
    ("pythonic", "[f(a=1), g()]", "", [F, G]),
    ("pythonic", "[1, 2]", "[1, 2]", []),
    ("pythonic", "How [f(a=1)]", "How [f(a=1)]", []),
    (
        "pythonic",
        " [f(a='x, ]\\'y', b=[None, {'c': True}], c=-1.5)] tail",
        "",
        [("f", '{"a": "x, ]\'y", "b": [null, {"c": true}], "c": -1.5}')],
    ),
    ("pythonic", "[f(1), f(x=b'z'), f(x=1e999), f(a=1)]", "", [F]),
    ("pythonic", "[f(a='x 'y' 'z), g(b='p 'q' 'r)]", "[f(a='x 'y' 'z), g(b='p 'q' 'r)]", []),
    ("pythonic", "[f(a=1", "[f(a=1", []),
    ("llama4_pythonic", "<|python_start|>[f(a=1)]<|python_end|>", "", [F]),
    ("gpt_oss", f"{THINK}<|channel|>final<|message|>Hello!<|return|>", "Hello!", []),
    (
        "gpt_oss",
        f'{THINK}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{"a": 1}}<|call|>',
        "",
        [F],
    ),
    (
        "openai",
        "<|channel|>commentary<|message|>I call.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
        '{"a": 1}',
        "I call.",
        [F],
    ),
    ("openai", "plain text", "plain text", []),
    (
        "openai",
        "<|channel|>commentary to=assistant<|message|>{}<|end|><|start|>assistant to=functions.g<|channel|>commentary"
        "<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Done.<|return|>",
        "Done.",
        [G],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "content", "calls"), CASES)
@pytest.mark.sampled(24, slow=25)
def test_calls_are_found_however_the_text_is_cut(
    name: str, text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    check(name, text, ("Hm" if text.startswith(THINK) else "", content, calls))


def test_lists_of_calls() -> None:
    text = '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]'
    for place in range(len(text)):
        assert result(parsed(JsonListParser, [text[:place], text[place:]])) == ("", "", [F, G])


def test_ids_are_as_the_format_demands() -> None:
    ids = {}
    for name in ("hermes", "mistral", "kimi_k2"):
        parser = parser_class(TOOL_PARSERS, name, ToolParser, "--tool-call-parser")(TOOLS)
        ids[name] = parser.call_id("f", 1)
    assert ids["hermes"].startswith("call_")
    assert len(ids["mistral"]) == 9
    assert ids["mistral"].isalnum()
    assert ids["kimi_k2"] == "functions.f:1"


def test_kimis_calls_keep_the_ids_that_the_model_wrote() -> None:
    heads = ("functions.f:3", "g:4", "functions.g:4", "functions.f:3", "functions.f.4")
    text = "".join(
        f"<|tool_call_begin|>{head} <|tool_call_argument_begin|>{{}}<|tool_call_end|>" for head in heads
    )
    message = parsed(KimiParser, [f"<|tool_calls_section_begin|>{text}<|tool_calls_section_end|>"])
    assert [call.name for call in message.calls] == ["f", "g", "g", "f", "f.4"]
    ids = [call.id for call in message.calls]
    assert ids == ["functions.f:3", "g:4", "functions.g:4", "functions.f:4", "functions.f.4:4"]


def test_a_call_begins_before_its_arguments() -> None:
    parser = QwenCoderParser(TOOLS)
    assert parser.feed("<tool_call>\n<function=f>\n") == [CallStart(0, "f")]
    assert parser.feed("<parameter=count>1</parameter>")[0] == CallArguments(0, '{"count": ')


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ message }}", None),
        ("<tool_call>{\\\"name\\\": ..., \\\"arguments\\\": ...}</tool_call>", "hermes"),
        ("<tool_call>\\n<function=x>\\n<parameter=y>", "qwen3_coder"),
        ("<tool_call>{{ name }}<arg_key>", None),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', "llama3_json"),
        ("[TOOL_CALLS]", "mistral"),
        (f"{SECTION}{CALL}", "deepseek_v3"),
        ("<|python_start|>", "llama4_pythonic"),
        ("<|channel|>commentary to=functions.", "gpt_oss"),
    ],
)  # fmt: skip
def test_the_format_is_inferred_from_the_template(template: str, name: str | None) -> None:
    expected = None if name is None else parser_class(TOOL_PARSERS, name, ToolParser, "--tool-call-parser")
    assert inferred(template) is expected


def test_packages_that_are_broken_cost_nobody_elses_parsers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, entries in (
        ("latin", b"\xff"),
        ("absent", b"[specdec.tool_parsers]\nlost = no_such_module:Lost\n"),
    ):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_bytes(entries)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._tool_parsers.cache_clear()
    try:
        assert inferred("[TOOL_CALLS]") is parser_class(
            TOOL_PARSERS, "mistral", ToolParser, "--tool-call-parser"
        )
    finally:
        registry._tool_parsers.cache_clear()
    assert (
        "'lost' cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'; it is left out"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hermess", "did you mean 'hermes'?"),
        ("specdec_server.message.Message", "is not a subclass of specdec_server.tools.parser.ToolParser"),
    ],
)
def test_wrong_names_are_told(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--tool-call-parser") as told:
        parser_class(TOOL_PARSERS, name, ToolParser, "--tool-call-parser")
    assert message in str(told.value)


def test_a_parser_may_stand_in_a_file(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from specdec_server.tools.hermes import HermesParser\nclass Mine(HermesParser): ...\n")
    found = parser_class(TOOL_PARSERS, f"{file}:Mine", ToolParser, "--tool-call-parser")
    assert found.__name__ == "Mine"
