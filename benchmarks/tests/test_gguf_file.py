"""GGUF files with the same weights, made from one written by the gguf package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from common.gguf_file import stored_as, stored_in
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, dequantize, quantize

MATRIX = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
VECTOR = np.linspace(0.5, 2.0, 5, dtype=np.float32)


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.Q4_1.gguf"
    writer = GGUFWriter(file, "llama")
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_1)
    writer.add_block_count(2)
    writer.add_token_list(["a", "b"])
    stored = GGMLQuantizationType.Q4_1
    writer.add_tensor("matrix", quantize(MATRIX, stored), raw_dtype=stored)
    writer.add_tensor("vector", VECTOR)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("kind", ["F32", "BF16", "F16"])
def test_weights_are_those_of_the_folder(shipped: Path, tmp_path: Path, kind: str) -> None:
    made = stored_as(shipped, kind, tmp_path / "kept")
    assert (stored_in(shipped), stored_in(made)) == ("Q4_1", kind)
    exact = dequantize(quantize(MATRIX, GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)
    reader = GGUFReader(made)
    matrix, vector = reader.tensors
    assert (matrix.tensor_type.name, vector.tensor_type.name) == (kind, "F32")
    # transformers rounds dequantised weights the same way.
    expected = torch.from_numpy(exact.astype(np.float32)).bfloat16().float().numpy()
    np.testing.assert_array_equal(dequantize(matrix.data, matrix.tensor_type), expected)
    np.testing.assert_array_equal(vector.data, torch.from_numpy(VECTOR).bfloat16().float().numpy())
    assert reader.fields["llama.block_count"].contents() == 2
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]


def test_a_file_is_made_once(shipped: Path, tmp_path: Path) -> None:
    made = stored_as(shipped, "F16", tmp_path / "kept")
    before = made.stat().st_mtime_ns
    assert stored_as(shipped, "F16", tmp_path / "kept") == made
    assert made.stat().st_mtime_ns == before
    with pytest.raises(SystemExit, match="stored as 'Q9': take one of F32, BF16, F16"):
        stored_as(shipped, "Q9", tmp_path)
