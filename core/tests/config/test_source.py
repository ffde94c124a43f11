"""The forms `speculative_config` is given in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec import ConfigError
from specdec.config.source import read_mapping

WANTED = {"method": "m", "num_speculative_tokens": 5}
JSON = '{"method": "m", "num_speculative_tokens": 5}'
YAML = "method: m\nnum_speculative_tokens: 5\n"


@pytest.mark.parametrize(
    "value", [WANTED, JSON, f"  {JSON}\n", YAML, "{method: m, num_speculative_tokens: 5}"]
)
def test_a_mapping_is_read_from_json_and_yaml_text(value: Any) -> None:
    assert read_mapping(value) == WANTED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", JSON),
        ("c.yaml", YAML),
        ("c.yml", "speculative_config:\n  method: m\n  num_speculative_tokens: 5\n"),
        ("d.yaml", f"speculative-config: '{JSON}'"),
        ("no-suffix", JSON),
    ],
)
def test_a_path_to_either_is_read(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_mapping(str(path)) == read_mapping(path) == WANTED


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """The limit of a new process, whatever libraries have raised it to in this one."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nonsense", "'nonsense' is neither a file nor a mapping such as {\"method\""),
        ('{"method": "m"', "neither JSON nor YAML: Expecting ',' delimiter (line 1, column 15)"),
        ("a: b: c", "neither JSON nor YAML: mapping values are not allowed here"),
        ("[1, 2]", "must hold a mapping"),
        ('{"method": ' + "[" * 100_000, "speculative_config cannot be read: maximum recursion depth exceeded"),
        ('{"method": ' + "9" * 5000 + "}", "speculative_config cannot be read: Exceeds the limit"),
        ("a: " + "[" * 5000, "neither JSON nor YAML: maximum recursion depth exceeded"),
        ("1: 2", "keys must be strings, got 1"),
        ("/no/such/file.json", "cannot read '/no/such/file.json': No such file or directory"),
        (5, "speculative_config must be a mapping, JSON or YAML text, or a path; got int"),
    ],
)  # fmt: skip
def test_anything_else_is_told_what_to_write(value: Any, message: str, usual_recursion: None) -> None:
    with pytest.raises(ConfigError) as caught:
        read_mapping(value)
    assert message in str(caught.value)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"method: \xe9")
    with pytest.raises(ConfigError, match=r"cannot read .*latin.yaml': 'utf-8' codec can't decode"):
        read_mapping(str(tmp_path / "latin.yaml"))


@pytest.mark.parametrize("path", ["~nobodyhere/x.json", "x" * 300 + ".yaml", "a\0b.json"])
def test_a_path_that_cannot_be_is_told(path: str) -> None:
    for given in (path, Path(path)):
        with pytest.raises(ConfigError, match="speculative_config: cannot read"):
            read_mapping(given)
