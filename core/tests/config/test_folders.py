"""Where caches are, and what is no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec import ConfigError
from specdec.folders import cache_folder, compiled_folder

VARIABLES = ("SPECDEC_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", "/home/me")


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_home_of_an_unknown_user_is_told(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "~nobodyhere/x")
    with pytest.raises(ConfigError, match=f"{variable}='~nobodyhere/x': there is no user 'nobodyhere'"):
        compiled_folder()


def test_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == Path("/home/me/.cache/specdec")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/caches")
    assert compiled_folder() == Path("/home/me/caches/specdec/compiled")
    monkeypatch.setenv("SPECDEC_CACHE", "~/own")
    assert (cache_folder(), compiled_folder()) == (Path("/home/me/own"), Path("/home/me/own/compiled"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/fast")
    assert compiled_folder() == Path("/fast")
