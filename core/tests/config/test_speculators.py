"""Checkpoints in the speculators format."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import parse_speculative_config, target_of


def config(kind: str, **changes: Any) -> dict[str, Any]:
    described = {
        "proposal_methods": [{"speculative_tokens": 4}],
        "verifier": {"name_or_path": "owner/target"},
    }
    return {
        "speculators_model_type": kind,
        "speculators_config": described | changes,
        "speculators_version": "0.2",
    }


@pytest.mark.usefixtures("plugins")
def test_method_and_k_come_from_the_file(checkpoint: Any) -> None:
    model = checkpoint("speculator", config("eagle3"))
    resolved = parse_speculative_config({"model": model})
    assert resolved is not None
    assert (resolved.config.method, resolved.config.num_speculative_tokens) == ("eagle3", 4)
    given = parse_speculative_config({"model": model, "num_speculative_tokens": 2, "method": "eagle3"})
    assert given is not None
    assert given.config.num_speculative_tokens == 2


@pytest.mark.usefixtures("plugins")
def test_its_type_may_imply_keys(checkpoint: Any) -> None:
    resolved = parse_speculative_config({"model": checkpoint("parallel", config("peagle"))})
    assert resolved is not None
    assert resolved.config.method == "eagle3"
    assert resolved.proposer_config.parallel_drafting is True


def test_a_speculator_given_as_the_model_names_its_target(checkpoint: Any) -> None:
    model = checkpoint("speculator", config("eagle3"))
    assert target_of(model) == (
        "owner/target",
        {"method": "eagle3", "model": model, "num_speculative_tokens": 4},
    )
    assert target_of(checkpoint("plain", {"model_type": "llama"})) is None
    assert target_of("zoo") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (config("unheard-of"), "speculators_model_type 'unheard-of'; known: dflash, dflash2, dspark, eagle"),
        (config("eagle3", proposal_methods=[]), "needs proposal_methods[0].speculative_tokens and verifier.name_or_path"),
        (config("eagle3", verifier={"name_or_path": None}), "names no verifier"),
    ],
)  # fmt: skip
def test_a_broken_file_is_told(checkpoint: Any, content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        target_of(checkpoint("broken", content))
    assert message in str(caught.value)
