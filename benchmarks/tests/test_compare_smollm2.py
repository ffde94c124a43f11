"""Pairs of engines that are compared, and the pairs for which equal tokens are required."""

from __future__ import annotations

from pathlib import Path

import compare_llama_cpp
import compare_smollm2
import pytest
from common.case import Case, run_case
from common.options import Options, make_parser, read_options
from common.pool import Pool
from common.speculation import Speculation, speculations
from common.variant import Variant

ENGINES = ("transformers", "vllm", "llama_cpp")


def options(*words: str) -> Options:
    return read_options(make_parser("", num_prompts=2, k=[4]).parse_args(["--model", "smollm2", *words]))


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_smollm2, "read_prompts", lambda _, count: [[1]] * count)
    monkeypatch.setattr(compare_llama_cpp, "gguf_of", lambda _: Path("/m.gguf"))
    monkeypatch.setattr(compare_llama_cpp, "stored_in", lambda _: "Q4_1")
    monkeypatch.setattr(compare_llama_cpp, "stored_as", lambda file, kind: file.with_suffix(f".{kind}"))


@pytest.fixture
def methods(tmp_path: Path) -> list[Speculation]:
    (tmp_path / "config.json").write_text("{}")
    given = options("--head", str(tmp_path))
    return list(speculations(given, ["ngram", "suffix", "eagle3"], ["first"]))


def names(case: Case) -> list[tuple[str, str]]:
    return [(left.name.removeprefix("specdec "), right.name) for left, right in case.pairs]


def test_every_engine_has_what_it_can(methods: list[Speculation]) -> None:
    alone, together = compare_smollm2.make_cases(
        options("--dtypes", "bfloat16"), ENGINES, methods, 8, "compiled", ["BF16", "shipped"]
    )
    shown = names(alone)
    ngram = "ngram k=4 first"
    for method in (ngram, "suffix k=4", "eagle3 k=4"):
        assert (method, "specdec none") in shown
        assert (method, f"vllm {method} compiled") in shown
        assert (method, "llama_cpp none Q4_1") in shown
        assert (method, f"transformers {method}") in shown or method != ngram
    assert ("none", "transformers none") in shown
    assert ("none", "vllm none compiled") in shown
    assert (ngram, f"llama_cpp {ngram} Q4_1") in shown
    assert (ngram, f"llama_cpp {ngram} BF16") in shown
    assert len(alone.variants) == 4 + 2 + 4 + 4
    assert (alone.batch_size, len(alone.prompts)) == (1, 2)
    assert (together.batch_size, len(together.prompts)) == (8, 8)
    assert {peer.engine for _, peer in together.pairs} == {"specdec", "vllm"}


def test_only_what_is_there(methods: list[Speculation]) -> None:
    (alone,) = compare_smollm2.make_cases(
        options("--dtypes", "float32"), ["transformers"], methods, 8, "eager", ["BF16"]
    )
    assert {peer.engine for _, peer in alone.pairs} == {"specdec", "transformers"}


def test_float32_has_one_file_with_the_same_weights(methods: list[Speculation]) -> None:
    found = compare_llama_cpp.pairs(options(), "float32", ["BF16", "shipped"], methods[:1])
    assert [(peer.name, peer.weights) for _, peer in found] == [
        ("llama_cpp none F32", ""),
        ("llama_cpp ngram k=4 first F32", ""),
    ]


def test_other_weights_need_not_give_the_same_tokens() -> None:
    right = Variant.make("stub", "right", "float32")
    settings = {"wrong_at": 3}
    other = Variant.make("stub", "other", "float32", settings, weights="Q4_1")
    same = Variant.make("stub", "same", "float32", settings)
    with Pool(Path("nowhere"), max_model_len=64, max_num_seqs=1) as pool:
        result = run_case(
            Case("float32", 1, [[1, 2]], ((right, other), (right, same))), pool, 5, 1, lambda _: 1.0
        )
    by_other, by_same = result.rows
    assert (by_other.gate.num_identical, by_other.ratio is None) == (0, False)
    assert (by_same.gate.num_identical, by_same.ratio is None) == (0, True)
