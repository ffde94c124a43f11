"""GGUF files with the same weights that the other engines load."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from gguf import (
    GGMLQuantizationType,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
    LlamaFileType,
    dequantize,
    quantize,
)

from common.process import BENCHMARKS

KINDS = ("F32", "BF16", "F16")
"""Types in which weights can be stored."""
KEPT = BENCHMARKS / ".peers" / "gguf"
"""Default folder of the files."""
_FILE_TYPES = {
    "F32": LlamaFileType.ALL_F32,
    "BF16": LlamaFileType.MOSTLY_BF16,
    "F16": LlamaFileType.MOSTLY_F16,
}
_WRITTEN_BY_ITSELF = ("general.architecture", "general.file_type", "general.quantization_version")


def stored_as(file: Path, kind: str, folder: Path = KEPT) -> Path:
    """Return a GGUF file with the bfloat16 weights of another GGUF file, stored as `kind`; create it if it is missing.

    Weights are dequantised and rounded to bfloat16, like those in the folder of `resolve_model`. `F32` and `BF16`
    hold exactly these numbers; `F16` loses some bits of those below 6e-5. Vectors are stored in float32, as
    llama.cpp requires. Metadata, including the tokenizer, is copied from the file.

    Args:
        file: the GGUF file.
        kind: one of `KINDS`.
        folder: where the result is kept.
    """
    if kind not in KINDS:
        raise SystemExit(f"weights cannot be stored as {kind!r}: take one of {', '.join(KINDS)}")
    status = file.stat()
    stamp = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
    made = folder / f"{file.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:8]}.{kind}.gguf"
    if made.is_file():
        return made
    print(f"storing {file.name} as {kind}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    part = made.with_suffix(".part")
    _write(GGUFReader(file), kind, part)
    part.rename(made)
    return made


def stored_in(file: Path) -> str:
    """Return the type of most weights of a GGUF file, such as `Q4_1`."""
    field = GGUFReader(file).fields.get("general.file_type")
    if field is None:
        return file.stem.rpartition(".")[2]
    return LlamaFileType(int(field.contents())).name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _write(reader: GGUFReader, kind: str, file: Path) -> None:
    writer = GGUFWriter(file, str(reader.fields["general.architecture"].contents()))
    writer.add_file_type(_FILE_TYPES[kind])
    for field in reader.fields.values():
        if field.name in _WRITTEN_BY_ITSELF or field.name.startswith("GGUF."):
            continue
        of = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of)
    for tensor in reader.tensors:
        stored = GGMLQuantizationType[kind if len(tensor.shape) > 1 else "F32"]
        writer.add_tensor(
            tensor.name, quantize(bfloat16_weights(tensor.data, tensor.tensor_type), stored), raw_dtype=stored
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def bfloat16_weights(data: np.ndarray, stored: GGMLQuantizationType) -> np.ndarray:
    """Return the weights of a tensor, dequantised and rounded to bfloat16, as float32 numbers."""
    exact = dequantize(data, stored).astype(np.float32)
    rounded = quantize(exact, GGMLQuantizationType.BF16)
    return np.asarray(dequantize(rounded, GGMLQuantizationType.BF16), np.float32)
