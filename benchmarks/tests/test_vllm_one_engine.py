"""The benchmark with one vLLM engine: its arithmetic, and restoring the runner."""

from __future__ import annotations

from types import SimpleNamespace

from vllm_one_engine import Exchange, reduce, table


def test_speeds_are_compared_within_a_round() -> None:
    pair = reduce(2, [1.0, 2.0, 4.0], [2.0, 4.0, 8.0], ([[1, 2], [3, 4]], [[1, 2], [3, 5]]))
    assert (pair.ours_tokens_per_s, pair.theirs_tokens_per_s) == (2.0, 1.0)
    assert (pair.ratio.median, pair.ratio.low, pair.ratio.high) == (2.0, 2.0, 2.0)
    assert (pair.num_same, pair.num_prompts) == (1, 2)
    assert "| 2 | 2 | 1 | 2.00 [2.00, 2.00]" in table([pair])
    assert "1 of 2" in table([pair])


def test_what_was_put_into_a_runner_is_taken_out_again() -> None:
    runner = SimpleNamespace(rejection_sampler="theirs", other=1)

    class Binding:
        def attach(self) -> None:
            runner.propose_draft_token_ids = runner._update_states = runner._input_fits_in_drafter = print
            runner.rejection_sampler = "ours"

    exchange = Exchange.__new__(Exchange)
    vars(exchange).update(_runner=runner, _stock="theirs", _binding=Binding())
    exchange.put(is_ours=True)
    assert runner.rejection_sampler == "ours"
    exchange.put(is_ours=False)
    assert vars(runner) == {"rejection_sampler": "theirs", "other": 1}
