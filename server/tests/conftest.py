from collections.abc import Iterator

import pytest
from openai import OpenAI
from servercheck.served import Served, serving

from specdec import LLM
from specdec_server import Settings

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with serving(Settings(model_names=("zoo", "small"), log_every_s=0.0), speculative_config=NGRAM) as found:
        yield found


@pytest.fixture(scope="session")
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.url}/v1", api_key="EMPTY", max_retries=0) as found:
        yield found


@pytest.fixture(scope="session")
def llm() -> LLM:
    """The same model without a server and without drafts: `strict` gives the same text."""
    return LLM(model="zoo", dtype="float32")
