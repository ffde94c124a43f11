"""glance keeps the promises of a proposer, and a head that was trained for half a minute guesses some tokens."""

from pathlib import Path
from tempfile import mkdtemp

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_glance import Glance, train
from specdec_testing import ProposerConformance

HEAD = Path(mkdtemp(), "head")
CONFIG = {"model": str(HEAD), "num_speculative_tokens": 3}


def setup_module() -> None:
    losses = train(HEAD, num_texts=64, num_steps=80)
    assert losses[-1] < losses[0] / 1.5


class TestGlance(ProposerConformance):
    """One test for each promise; what does not apply is skipped, with the reason."""

    method = Glance
    config = CONFIG
    model = "zoo"


def test_guesses_stand_and_change_nothing() -> None:
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(240)[-4:]]
    params = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
    plain = LLM("zoo", dtype="float32").generate(prompts, params)
    config = {"method": "specdec_glance.proposer.Glance", **CONFIG}
    outputs = LLM("zoo", dtype="float32", speculative_config=config).generate(prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    assert sum(o.metrics.num_accepted_tokens for o in outputs) > 0
