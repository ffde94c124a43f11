"""What `docs/tools.md` lists is what there is."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from specdec.config import notices
from specdec_server.arguments import split_options, without_foreign
from specdec_server.protocol import ChatRequest
from specdec_server.protocol.harmless import HarmlessFields
from specdec_server.tools.registry import REASONING_PARSERS, TOOL_PARSERS

TEXT = (Path(__file__).parents[2] / "docs/tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("group", [TOOL_PARSERS, REASONING_PARSERS])
def test_every_parser_is_listed(group: str) -> None:
    names = {entry.name for entry in entry_points(group=group)}
    assert len(names) > 5
    assert {name for name in names if f"`{name}`" not in TEXT} == set()


def test_harmless_fields_are_listed_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    fields = set(HarmlessFields.model_fields)
    assert {name for name in fields if f"`{name}`" not in TEXT} == set()
    notices.reset()
    given = {
        name: {} if "dict" in str(info.annotation) else True if name == "store" else "x"
        for name, info in HarmlessFields.model_fields.items()
    }
    for _ in range(2):
        ChatRequest(messages=[{"role": "user", "content": "x"}], **given).to_sampling_params(20)
    assert len(caplog.messages) == len(fields)
    assert all(any(repr(name) in message for message in caplog.messages) for name in fields)
    ChatRequest(messages=[], store=False).to_sampling_params(20)
    assert len(caplog.messages) == len(fields)


def test_vllms_options_about_tools_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    notices.reset()
    words, options = split_options(["--enable-auto-tool-choice"])
    assert (words, without_foreign(options)) == ([], {})
    assert "tool_choice may always be auto" in caplog.text
