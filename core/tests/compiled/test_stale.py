"""Compiled code does not outlive the sources it was made from."""

from specdec.compiled.stale import drop_stale


def test_what_other_sources_made_is_dropped(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "code.py").write_text("one = 1\n")
    drop_stale(ours, theirs)
    kept = [
        folder / "__pycache__" / f"code.{ending}" for folder in (ours, theirs) for ending in ("nbi", "nbc")
    ]
    for file in kept:
        file.write_bytes(b"compiled")
    other = ours / "__pycache__" / "code.cpython-311.pyc"
    other.write_bytes(b"python's own")
    drop_stale(ours, theirs)
    assert all(file.exists() for file in kept), "nothing has changed"
    (theirs / "code.py").write_text("one = 2\n")  # what the functions of `ours` call
    drop_stale(ours, theirs)
    assert not any(file.exists() for file in kept)
    assert other.exists()


def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path):
    (tmp_path / "code.py").write_text("one = 1\n")
    (tmp_path / "__pycache__").write_text("no folder")
    drop_stale(tmp_path)
