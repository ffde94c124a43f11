"""The llama.cpp worker, with a stub package in place of llama-cpp-python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.pool import EngineHome, Pool
from common.process import WorkerError
from common.speculation import Speculation
from common.variants import llama_cpp
from workers.llama_cpp_worker import NUM_THREADS

PACKAGE = """
GGML_TYPE_F32 = 0

class Llama:
    def __init__(self, *, model_path, n_ctx, n_threads, n_threads_batch, logits_all, verbose, **given):
        draft = given.get("draft_model")
        lookup = [] if draft is None else [draft.num_pred_tokens, draft.max_ngram_size]
        self.said = [len(model_path), n_ctx, n_threads, n_threads_batch, int(logits_all), given.get("type_k", 9), *lookup]
        self.text = []

    def reset(self):
        self.text = []

    def generate(self, tokens, *, temp):
        assert temp == 0.0
        self.text += tokens
        yield len(self.text)
        yield from self.said
        while True:
            yield 7
"""
SPECULATIVE = """
class LlamaPromptLookupDecoding:
    def __init__(self, max_ngram_size, num_pred_tokens):
        self.max_ngram_size, self.num_pred_tokens = max_ngram_size, num_pred_tokens
"""
FILE = Path("/x.gguf")
LOOKUP = Speculation("ngram k=4", {}, None, {}, {"num_pred_tokens": 4, "max_ngram_size": 3})


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "llama_speculative.py").write_text(SPECULATIVE)
    home = EngineHome(environment={"PYTHONPATH": str(tmp_path)})
    with Pool(Path("nowhere"), max_model_len=64, max_num_seqs=8, homes={"llama_cpp": home}) as pool:
        yield pool


def test_every_prompt_starts_from_nothing(pool: Pool) -> None:
    worker = pool.get(llama_cpp("bfloat16", FILE, "BF16"))
    assert worker.ready["num_threads"] == NUM_THREADS
    expected = [7, 64, NUM_THREADS, NUM_THREADS, 0, 9, 7, 7]
    assert worker.generate([[1, 2, 3]], 9)["token_ids"] == [[3, *expected]]
    assert worker.generate([[1, 2]], 9)["token_ids"] == [[2, *expected]]
    with pytest.raises(WorkerError, match="one prompt at a time, not 2"):
        worker.generate([[1], [2]], 1)


def test_prompt_lookup_in_float32(pool: Pool) -> None:
    worker = pool.get(llama_cpp("float32", FILE, "F32", LOOKUP))
    said = [7, 64, NUM_THREADS, NUM_THREADS, 1, 0, 4, 3]
    assert worker.generate([[5]], 9)["token_ids"] == [[1, *said]]
