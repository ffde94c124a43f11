"""echo keeps the promises of a proposer, and finds what it should."""

from specdec import LLM, SamplingParams
from specdec_testing import ProposerConformance


class TestEcho(ProposerConformance):
    """One test for each promise; what does not apply is skipped, with the reason."""

    method = "echo"
    config = {"num_speculative_tokens": 4, "max_distance": 64}


def test_a_repetition_is_drafted() -> None:
    config = {"method": "echo", "num_speculative_tokens": 3}
    llm = LLM(model="zoo", dtype="float32", speculative_config=config)
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    output = llm.generate(["a = 1\n" * 4], params)[0]
    assert output.metrics.num_accepted_tokens > 0
