"""The cache file: what is written is read again, and nothing else is."""

import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tracemalloc
from array import array
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specdec import LLM, ConfigError, SamplingParams
from specdec.interfaces import FinishReason
from specdec_plugin_suffix import keeper
from specdec_plugin_suffix.cache_file import FORMAT, VERSION, read_responses, write_responses

RESPONSES = [array("i", [1, 2, 3]), array("i", [7]), array("i", range(40))]
OWNER = "a" * 64


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "responses.cache"
    write_responses(path, RESPONSES, OWNER)
    return path


def test_what_is_written_is_read(file, tmp_path) -> None:
    assert read_responses(file, OWNER, 1000) == RESPONSES
    assert [each.name for each in tmp_path.iterdir()] == ["responses.cache"]
    write_responses(file, [], None)
    assert read_responses(file, None, 1000) == []


def test_a_compressed_file_is_read_like_any_other(file, tmp_path) -> None:
    small = tmp_path / "responses.xz"
    write_responses(small, RESPONSES * 50, OWNER)
    assert read_responses(small, OWNER, 1000) == RESPONSES * 50
    write_responses(file, RESPONSES * 50, OWNER)
    assert small.stat().st_size * 4 < file.stat().st_size
    content = small.read_bytes()
    for damaged in (content[:-1], content[:200], content.replace(content[100:110], bytes(10))):
        small.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"not a suffix cache, or is damaged .*delete it"):
            read_responses(small, OWNER, 1000)


def test_every_flipped_bit_is_found(file) -> None:
    content = file.read_bytes()
    places = [*range(0, 400), *range(400, len(content), 3)]
    for place in places:
        for bit in (0, 3, 7):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            with pytest.raises(ConfigError, match="specdec suffix warm"):
                read_responses(file, OWNER, 1000)


def test_every_truncation_is_found(file) -> None:
    content = file.read_bytes()
    for length in [*range(0, 64), *range(64, len(content), 7)]:
        file.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"not a suffix cache, or is damaged .*delete it"):
            read_responses(file, OWNER, 1000)
    file.write_bytes(content + b"\0")
    with pytest.raises(ConfigError, match="damaged"):
        read_responses(file, OWNER, 1000)


def crafted(path, lengths, token_ids, owner=OWNER) -> None:
    """Write a file whose checksum fits whatever it holds."""
    arrays = np.array(token_ids, np.int32), np.array(lengths, np.int64)
    digest = hashlib.sha256(f"{FORMAT}\0{VERSION}\0{owner}\0{len(lengths)}\0".encode())
    digest.update(arrays[1].tobytes() + arrays[0].tobytes())
    metadata = {"format": FORMAT, "version": VERSION, "tokenizer": owner, "sha256": digest.hexdigest()}
    save_file({"token_ids": arrays[0], "lengths": arrays[1]}, path, metadata=metadata)


def test_lengths_whose_sum_wraps_around_are_refused(tmp_path) -> None:
    path = tmp_path / "wraps"
    crafted(path, [2], [1, 2])
    assert [list(each) for each in read_responses(path, OWNER, 1000)] == [[1, 2]]
    for lengths in ([2**62, 2**62, 2**62, 2**62 + 2], [2**63 - 1, 2**63 - 1, 4]):
        crafted(path, lengths, [1, 2])
        with pytest.raises(ConfigError, match="the lengths do not fit the tokens"):
            read_responses(path, OWNER, 1000)


def test_a_small_file_takes_little_memory_before_it_is_refused(tmp_path) -> None:
    path, zeros = tmp_path / "bomb.xz", bytes(2**20)
    packer = lzma.LZMACompressor()
    path.write_bytes(b"".join([*(packer.compress(zeros) for _ in range(200)), packer.flush()]))
    assert path.stat().st_size < 50_000
    tracemalloc.start()
    with pytest.raises(ConfigError, match="it holds more than 16777216 bytes, compressed to"):
        read_responses(path, None, 1000)
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()
    text = b'{"__metadata__":' + b'[{"a":0},' * 1_500_000
    path.write_bytes(lzma.compress(len(text).to_bytes(8, "little") + text, preset=0))
    with pytest.raises(ConfigError, match=f"its header would have {len(text)} bytes"):
        read_responses(path, None, 1000)
    path.write_bytes(
        lzma.compress(zeros, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1536 * 2**20}])
    )
    with pytest.raises(ConfigError, match="Memory usage limit"):
        read_responses(path, None, 1000)


def test_a_deep_header_is_refused(tmp_path) -> None:
    text = b"[" * 60_000
    (tmp_path / "deep").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ConfigError, match="is not a suffix cache"):
        read_responses(tmp_path / "deep", None, 1000)


def test_responses_that_are_much_the_same_are_read_again(tmp_path) -> None:
    path = tmp_path / "same.xz"
    same = [array("i", [5] * 50_000)] * 100
    write_responses(path, same, OWNER)
    assert read_responses(path, OWNER, 1000) == same


def test_what_never_ends_is_not_read(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="cannot be read: Not a regular file"):
            read_responses(endless, OWNER, 1000)


def test_foreign_files(tmp_path) -> None:
    weights, text, huge = tmp_path / "model.safetensors", tmp_path / "text", tmp_path / "huge"
    save_file({"a": np.zeros(3)}, weights)
    text.write_text("not a cache at all, but longer than a header")
    huge.write_bytes(b"\xff" * 64)
    for path in (weights, text, huge):
        with pytest.raises(ConfigError, match=rf"{path.name}.* is not a suffix cache"):
            read_responses(path, OWNER, 1000)


def test_a_folder_and_a_missing_file(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_responses(tmp_path, OWNER, 1000)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_responses(tmp_path / "none", OWNER, 1000)


def test_another_tokenizer_or_vocabulary_is_refused(file) -> None:
    with pytest.raises(
        ConfigError, match="made with tokenizer aaaaaaaaaaaa, the target has tokenizer bbbbbbbbbbbb"
    ):
        read_responses(file, "b" * 64, 1000)
    with pytest.raises(ConfigError, match="the target has no tokenizer"):
        read_responses(file, None, 1000)
    with pytest.raises(ConfigError, match="token ids from 0 to 39, the target's vocabulary 39"):
        read_responses(file, OWNER, 39)


def test_another_version_says_so(file, monkeypatch) -> None:
    monkeypatch.setattr("specdec_plugin_suffix.cache_file.VERSION", "2")
    with pytest.raises(ConfigError, match="has version 1 of the format, this package reads version 2"):
        read_responses(file, OWNER, 1000)


def test_a_failed_write_leaves_the_old_file(file, tmp_path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_responses(file, [array("i", [5])], OWNER)
    assert read_responses(file, OWNER, 1000) == RESPONSES
    assert [each.name for each in tmp_path.iterdir()] == ["responses.cache"]


def finished(feed, *phrase: int) -> None:
    feed.append("x", 21, 22, *phrase)
    feed.finish("x", FinishReason.LENGTH)


def test_a_proposer_goes_on_where_the_last_one_ended(make_feed, tmp_path) -> None:
    path = tmp_path / "responses.cache"
    first = make_feed(suffix_decoding_cache_path=path)
    finished(first, 11, 12, 13, 14)
    assert not path.exists()
    del first  # garbage: written now
    assert path.exists()
    second = make_feed(suffix_decoding_cache_path=path)
    assert second.append("a", 9, 11, 12) == [13, 14]
    finished(second, 41, 42, 43)
    second.proposer.save()
    assert [list(each) for each in read_responses(path, OWNER, 1000)] == [
        [21, 22, 11, 12, 13, 14],
        [21, 22, 41, 42, 43],
    ]


def test_a_file_longer_than_the_memory_keeps_the_newest(make_feed, tmp_path) -> None:
    path = tmp_path / "responses.cache"
    write_responses(path, [array("i", [start, start + 1, start + 2]) for start in (30, 40, 50)], OWNER)
    feed = make_feed(suffix_decoding_cache_path=path, suffix_decoding_max_cached_requests=2)
    assert feed.append("a", 9, 30, 31) == []
    assert feed.append("b", 9, 40, 41) == [42]
    assert feed.append("c", 9, 50, 51) == [52]


def test_nothing_new_writes_nothing(make_feed, tmp_path) -> None:
    path = tmp_path / "responses.cache"
    write_responses(path, RESPONSES, OWNER)
    before = path.stat().st_mtime_ns
    feed = make_feed(suffix_decoding_cache_path=path)
    feed.append("x", 1, 2, 3, 4)
    feed.finish("x", FinishReason.ABORT)
    feed.proposer.save()
    assert path.stat().st_mtime_ns == before


def test_only_the_own_process_writes(make_feed, tmp_path, monkeypatch) -> None:
    path = tmp_path / "responses.cache"
    forked = make_feed(suffix_decoding_cache_path=path)
    finished(forked, 11, 12, 13)
    monkeypatch.setattr(keeper.os, "getpid", lambda: -1)
    forked.proposer.save()
    assert not path.exists()


def test_a_file_that_is_read_only_is_only_read(make_feed, tmp_path, monkeypatch) -> None:
    path = tmp_path / "responses.cache"
    write_responses(path, RESPONSES, OWNER)
    feed = make_feed(suffix_decoding_cache_path=path)
    finished(feed, 11, 12, 13)
    monkeypatch.setattr(keeper.os, "access", lambda *_: False)  # as for anybody but root
    feed.proposer.save()
    assert read_responses(path, OWNER, 1000) == RESPONSES


def test_a_folder_that_cannot_be_written_to_is_refused_at_the_start(make_feed, tmp_path, monkeypatch) -> None:
    with pytest.raises(
        ConfigError, match=r"suffix_decoding_cache_path: .*is not a folder that can be written to"
    ):
        make_feed(suffix_decoding_cache_path=tmp_path / "none" / "file")
    monkeypatch.setattr(keeper.os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="does not exist and cannot be made"):
        make_feed(suffix_decoding_cache_path=tmp_path / "file")


def test_a_failure_at_the_end_is_logged(make_feed, tmp_path, caplog) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    feed = make_feed(suffix_decoding_cache_path=folder / "file")
    finished(feed, 11, 12, 13)
    shutil.rmtree(folder)
    del feed
    assert "was not written: No such file or directory" in caplog.text


def test_a_shut_down_engine_has_written(tmp_path) -> None:
    path = tmp_path / "responses.cache"
    config = {"method": "suffix", "num_speculative_tokens": 4, "suffix_decoding_cache_path": str(path)}
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    llm = LLM("zoo", dtype="float32", speculative_config=config)
    [request] = llm.generate(["def main("], params)
    output = request.outputs[0]
    llm.shutdown()
    assert path.exists()
    again = LLM("zoo", dtype="float32", speculative_config=config)
    (known,) = again._built.engine.proposer._trees.memory.responses.values()
    assert list(known) == [*request.prompt_token_ids, *output.token_ids]  # the prompt is short
    second = again.generate(["def main("], params)[0]
    assert second.outputs[0].token_ids == output.token_ids
    assert second.metrics.num_accepted_tokens >= 8


@pytest.mark.slow
def test_an_interpreter_that_ends_has_written(tmp_path) -> None:
    code = (
        "from specdec import LLM, SamplingParams\n"
        "config = {'method': 'suffix', 'suffix_decoding_cache_path': 'at-exit'}\n"
        "llm = LLM('zoo', dtype='float32', speculative_config=config)\n"
        "llm.generate(['import os'], SamplingParams(max_tokens=4))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=os.environ)
    assert (tmp_path / "at-exit").exists()


def test_a_damaged_file_is_a_configuration_error_of_the_engine(tmp_path) -> None:
    (tmp_path / "cache").write_bytes(b"nonsense")
    config = {"method": "suffix", "suffix_decoding_cache_path": str(tmp_path / "cache")}
    with pytest.raises(ConfigError, match="cache' is not a suffix cache"):
        LLM("zoo", dtype="float32", speculative_config=config)


@pytest.mark.parametrize("name", ["x" * 300, "y" * 254, "~nobodyhere/x", "a\0b", "/proc/x", "/dev/null/x"])
def test_a_path_that_cannot_be_is_told_before_the_first_request(
    make_feed, tmp_path, monkeypatch, name
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="suffix_decoding_cache_path: "):
        make_feed(suffix_decoding_cache_path=name)
