"""A server of one model over two processes."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from openai import APIError, OpenAI
from servercheck.served import address

from specdec import LLM, SamplingParams

pytestmark = pytest.mark.slow

PROMPT = "import os\nimport sys\n\n\ndef read_lines(path):\n"
COMMAND = [
    str(Path(sys.executable).with_name("specdec")), "serve", "zoo", "--tensor-parallel-size", "2", "--dtype", "float32",
    "--port", "0", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}',
]  # fmt: skip


def test_two_ranks_serve_the_text_of_one_and_a_killed_one_is_told(llm: LLM, tmp_path: Path) -> None:
    [expected] = llm.generate(PROMPT, SamplingParams(temperature=0.8, seed=3, max_tokens=40), use_tqdm=False)
    log = tmp_path / "log"
    with log.open("w") as written, subprocess.Popen(COMMAND, stderr=written, text=True) as server:
        try:
            url = address(log, server)
            with OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
                asked = {"model": "zoo", "prompt": PROMPT, "temperature": 0.8, "seed": 3, "max_tokens": 40}
                assert client.completions.create(**asked).choices[0].text == expected.outputs[0].text
                streamed = client.completions.create(**asked, stream=True)
                assert "".join(event.choices[0].text for event in streamed) == expected.outputs[0].text
                [rank] = psutil.Process(server.pid).children()
                rank.kill()
                with pytest.raises(APIError, match="another rank than rank 0 has ended, or was killed"):
                    client.completions.create(**asked)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0, log.read_text()
        finally:
            server.kill()
    assert log.read_text().count("the engine failed; every request ends") == 1
