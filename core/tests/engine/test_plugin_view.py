"""What a proposer is shown shares no memory with the engine."""

from __future__ import annotations

from specdec import SamplingParams
from specdec.engine.speculation.plugin_view import separate


def test_sampling_parameters_share_no_list_and_no_mapping() -> None:
    params = SamplingParams(stop=["a"], stop_token_ids=[3], bad_words=["b"], logit_bias={1: 2.0})
    shown = separate(params)
    assert shown == params
    changed = []
    for name, value in shown:
        if isinstance(value, list):
            value.append(value[0] if value else 9)
            changed.append(name)
        elif isinstance(value, dict):
            value.clear()
            changed.append(name)
    assert {"stop", "stop_token_ids", "bad_words", "logit_bias"} <= set(changed)
    assert (params.stop, params.stop_token_ids, params.bad_words, params.logit_bias) == (
        ["a"],
        [3],
        ["b"],
        {1: 2.0},
    )
