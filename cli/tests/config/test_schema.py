"""The JSON Schema of everything installed."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_cli.config.schema import json_schema


@pytest.mark.usefixtures("plugins")
def test_every_installed_method_is_an_alternative_with_its_own_keys(site: Any) -> None:
    site.install("bad", {"proposers": {"bad": "bad_plugin"}}, {"bad_plugin": "import no_such_library"})
    schema = json_schema()
    by_name = {alternative["title"]: alternative for alternative in schema["oneOf"]}
    suffix = by_name["suffix"]
    assert suffix["properties"]["method"] == {"const": "suffix"}
    assert suffix["properties"]["suffix_decoding_min_token_prob"]["maximum"] == 1
    assert suffix["properties"]["num_speculative_tokens"]["anyOf"][0]["exclusiveMinimum"] == 0
    assert suffix["additionalProperties"] is False
    assert {"uses_q", "strict", "gumbel"} <= set(suffix["properties"]["rejection_sample_method"]["enum"])
    assert "posterior_threshold" in suffix["properties"], (
        "keys of samplers are valid beside those of any method"
    )
    assert "prompt_lookup_max" not in suffix["properties"]
    assert "method 'bad' of bad 1.0 cannot be loaded" in schema["$comment"]
    assert by_name["a class of your own"]["additionalProperties"] is True
