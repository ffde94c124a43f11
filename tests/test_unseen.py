"""Which releases no test has seen (`scripts/unseen.py`), and what passed with others (`scripts/tested_versions.py`)."""

import json
from pathlib import Path

from tested_versions import RESULTS, outcomes
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


def test_outcomes_are_counted_by_what_is_tested(tmp_path: Path) -> None:
    cases = (
        '<testcase classname="tests.test_sweep"/><testcase classname="tests.test_sweep"><skipped/></testcase>'
        '<testcase classname="adapters.transformers.tests.test_cache.TestCache"><failure/></testcase>'
        '<testcase classname="tests.test_sweeping"/>'
    )
    file = tmp_path / "tests.xml"
    file.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert outcomes([str(file)]) == {
        "the adapter": {"failure": 1},
        "all causal classes": {"passed": 1, "skipped": 1},
        "hybrids": {},
        "heads of exporters": {},
    }


def test_all_that_is_noted_of_versions_passed_and_the_newest_seen_is_among_them() -> None:
    noted = json.loads(RESULTS.read_text())
    assert dict(line.split("==") for line in SEEN.read_text().splitlines())["transformers"] in noted
    counts = [count for row in noted.values() for count in row.values() if isinstance(count, dict)]
    assert {outcome for count in counts for outcome in count} <= {"passed", "skipped"}
