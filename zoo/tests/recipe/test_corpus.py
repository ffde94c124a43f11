"""The corpus and its split."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from zoo_recipe.corpus import read_corpus, split_of, stdlib_root


def test_split_is_disjoint_and_large_enough() -> None:
    corpus = read_corpus(stdlib_root())
    train, heldout = corpus.split("train"), corpus.split("heldout")
    assert {file.path for file in train}.isdisjoint(file.path for file in heldout)
    assert {file.sha256 for file in train}.isdisjoint(file.sha256 for file in heldout)
    assert len(train) + len(heldout) == len(corpus.files)
    assert sum(file.num_bytes > 2000 for file in heldout) >= 35
    assert 0.05 < len(heldout) / len(corpus.files) < 0.12


def test_split_depends_on_the_path_alone() -> None:
    assert split_of("argparse.py", 70) == "heldout"
    assert split_of("inspect.py", 70) == "train"
    assert split_of("inspect.py", 1000) == "heldout"
    assert split_of("argparse.py", 0) == "train"


def test_reads_sources_and_skips_tests_and_other_encodings(tmp_path: Path) -> None:
    for name, data in {
        "a.py": b"x = 1\n",
        "pkg/b.py": "y = 'é'\r\n".encode(),
        "pkg/test/c.py": b"z = 1\n",
        "site-packages/d.py": b"z = 1\n",
        "latin.py": b"# \xe9\n",
        "empty.py": b"\n",
        "text.txt": b"hello",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    corpus = read_corpus(tmp_path)
    assert [file.path for file in corpus.files] == ["a.py", "pkg/b.py"]
    second = corpus.files[1]
    assert second.text == "y = 'é'\r\n"
    assert second.num_bytes == len(second.text.encode())
    assert second.sha256 == hashlib.sha256(second.text.encode()).hexdigest()


def test_unknown_file_and_empty_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no Python files below .*standard library"):
        read_corpus(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"not in the corpus .*\['b.py'\]"):
        read_corpus(tmp_path, only=("a.py", "b.py"))
