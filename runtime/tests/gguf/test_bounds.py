"""A GGUF file that says more than it can hold is refused before anything loops over it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from time import process_time

import gguf
import pytest
from tiny_gguf import write_gguf

from specdec.errors import ModelError
from specdec_runtime.gguf.bounds import check_bounds
from specdec_runtime.gguf.convert import convert

HUGE = 2**31


def header(*, tensors: int = 0, fields: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields)


def field(kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", 1) + b"a" + struct.pack("<I", kind) + value


def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return header(fields=1) + field(9, struct.pack("<IQ", kind, count) + content) + bytes(400)


REFUSED = {
    "nothing": (b"", "empty file"),
    "another format": (b"PK\x03\x04" + bytes(60), "it does not begin with GGUF"),
    "version 1": (header(version=1) + bytes(40), "version 1 of the format is not read"),
    "cut short": (b"GGUF\x03", "it ends within its header, at 5 bytes"),
    "tensors": (header(tensors=HUGE) + bytes(400), f"it says that it has {HUGE} tensors"),
    "fields": (header(fields=HUGE) + bytes(400), f"it says that it has {HUGE} fields"),
    "fewer tensors than it could hold": (header(tensors=50_000) + bytes(400), "it ends within its header, at 424 bytes"),
    "an array of bytes": (array(0, HUGE), f"it says that an array has {HUGE} elements"),
    "an array of strings": (array(8, HUGE), f"it says that an array has {HUGE} elements"),
    "an array of a million": (array(4, 10**6), "it ends within its header, at 449 bytes"),
    "an array of arrays": (array(9, 1, array(9, HUGE)), "it has a field of type 9"),
    "a long string": (header(fields=1) + field(8, struct.pack("<Q", 2**63)), "it ends within its header"),
    "a long name": (header(fields=1) + struct.pack("<Q", 2**64 - 1), "it ends within its header"),
    "an unknown type": (header(fields=1) + field(77, bytes(8)), "it has a field of type 77"),
    "dimensions": (
        header(tensors=1) + struct.pack("<Q", 1) + b"a" + struct.pack("<I", HUGE) + bytes(400),
        f"it says that a tensor has {HUGE} dimensions",
    ),
    "nine dimensions": (
        header(tensors=1) + struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9) + bytes(400),
        "it says that a tensor has 9 dimensions",
    ),
    "arrays of four million together": (
        header(fields=2) + b"".join(field(9, struct.pack("<IQ", 0, size) + bytes(size)) for size in (2**21, 2**21 + 1)),
        f"it says that an array has {2**21 + 1} elements",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("read", [check_bounds, lambda file: convert(file, "float32", file.parent / "out")])
def test_what_does_not_fit_is_refused_at_once(
    tmp_path: Path, kind: str, read: Callable[[Path], None]
) -> None:
    content, reason = REFUSED[kind]
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    started = process_time()
    with pytest.raises(ModelError) as caught:
        read(file)
    assert process_time() - started < 5
    assert str(caught.value).startswith(f"{file} is not a GGUF file, or is damaged (")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("): fetch it again")


def test_fields_of_every_type_are_passed_over(tmp_path: Path) -> None:
    kinds = (
        "uint8",
        "int8",
        "uint16",
        "int16",
        "uint32",
        "int32",
        "float32",
        "bool",
        "uint64",
        "int64",
        "float64",
    )
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for kind in kinds:
        getattr(writer, f"add_{kind}")(f"a.{kind}", 1)
    writer.add_array("texts", ["a", "bc"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    check_bounds(tmp_path / "m.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "m.gguf").read_bytes()[:-1])
    with pytest.raises(ModelError, match="it ends within its header"):
        check_bounds(tmp_path / "cut.gguf")


def test_every_cut_of_a_header_is_found_and_the_whole_file_is_taken(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    check_bounds(file)
    content = file.read_bytes()
    first = min(tensor.data_offset for tensor in gguf.GGUFReader(file).tensors)
    cut = tmp_path / "cut.gguf"
    for length in range(0, first - 64, 97):
        cut.write_bytes(content[:length])
        with pytest.raises(ModelError, match="is damaged"):
            check_bounds(cut)
