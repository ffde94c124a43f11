"""`plugin_names`: all names from one, and the ones that are refused."""

from __future__ import annotations

import pytest

from specdec.errors import ConfigError
from specdec.registry import Group
from specdec_testing.scaffold import PluginNames, plugin_names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my-idea", PluginNames("my-idea", "my_idea", "MyIdea", "specdec-my-idea")),
        ("my_idea", PluginNames("my_idea", "my_idea", "MyIdea", "specdec-my-idea")),
        ("wild9", PluginNames("wild9", "wild9", "Wild9", "specdec-wild9")),
        ("a-2-b", PluginNames("a-2-b", "a_2_b", "A2B", "specdec-a-2-b")),
    ],
)
def test_all_names_follow_from_one(name: str, expected: PluginNames) -> None:
    assert plugin_names(name, Group.PROPOSERS) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "My-Idea",
        "my idea",
        "9lives",
        "-my",
        "my-",
        "my--idea",
        "../up",
        "a/b",
        "my.idea",
        "idée",
        "my_-idea",
    ],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="use lower-case words of letters and digits, as in my-idea"):
        plugin_names(name, Group.PROPOSERS)


@pytest.mark.parametrize(
    ("name", "group", "reason"),
    [
        ("class", Group.PROPOSERS, "is a Python keyword"),
        ("eagle", Group.PROPOSERS, "is that of a published method"),
        ("draft-model", Group.PROPOSERS, "is that of a published method"),
        ("strict", Group.SAMPLERS, "is taken: sampler 'strict' of specdec-core"),
        ("json", Group.PROPOSERS, "there is a module 'json' already"),
        ("torch", Group.SAMPLERS, "there is a module 'torch' already"),
    ],
)
def test_names_that_belong_to_something_else(name: str, group: Group, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plugin_names(name, group)


def test_a_samplers_name_may_be_a_methods() -> None:
    assert plugin_names("eagle", Group.SAMPLERS).module == "eagle"
