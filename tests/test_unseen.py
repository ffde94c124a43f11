"""Which releases the daily run of the newest has not seen (`scripts/unseen.py`)."""

import json
from pathlib import Path

from unseen import SEEN, released, unseen

from specdec_runtime.loading.versions import TESTED


def test_a_release_is_named_with_its_date_until_it_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "numba/0.69.0"
    folder.mkdir(parents=True)
    files = [{"upload_time_iso_8601": f"2027-01-{day}T10:00:00.0Z"} for day in ("12", "11")]
    (folder / "json").write_text(json.dumps({"urls": files}))
    installed = {"numba": "0.69.0", "torch": "2.14.1+cpu", "six": "1.17.0"}
    seen = "numba==0.68.1\ntorch==2.14.1\ntriton==3.8.0\n"
    assert unseen(installed, seen, tmp_path.as_uri()) == ["numba 0.69.0, released 2027-01-11 (seen: 0.68.1)"]
    assert unseen(installed, seen.replace("0.68.1", "0.69.0"), tmp_path.as_uri()) == []
    assert released("numba", "1.0", tmp_path.as_uri()).startswith("at a date that file:")


def test_models_are_told_of_newer_versions_than_the_newest_seen() -> None:
    seen = dict(line.split("==") for line in SEEN.read_text().splitlines())
    for name, tested in TESTED.items():
        assert tuple(map(int, seen[name].split(".")[:2])) == tested, f"{name}: runtime/loading/versions.py"
