"""The ids of a request's own text: found as the text grows, the newest ones if there are many, and of no other request."""

from __future__ import annotations

import numpy as np
import pytest

from specdec_runtime.drafting import OwnIds, own_ids


@pytest.fixture
def found() -> OwnIds:
    return OwnIds(np.arange(10), 100)


def test_a_text_grows(found) -> None:
    text = np.array([3, 50, 9, 12, 50, 7, 99, 11], np.int32)
    for length, expected in ((0, []), (1, []), (3, [50]), (5, [12, 50]), (8, [11, 12, 50, 99])):
        ids = found.of("a", text[:length])
        assert ids.dtype == np.int64
        assert ids.tolist() == expected
    assert found.of("a", text).tolist() == [11, 12, 50, 99]


def test_requests_have_their_own(found) -> None:
    assert found.of("a", np.array([20, 30], np.int32)).tolist() == [20, 30]
    assert found.of("b", np.array([40], np.int32)).tolist() == [40]
    found.drop("a")
    assert found.of("a", np.array([60], np.int32)).tolist() == [60]
    assert found.of("b", np.array([40, 41], np.int32)).tolist() == [40, 41]
    found.drop("never met")


def test_the_newest_of_many_stay(found, monkeypatch) -> None:
    monkeypatch.setattr(own_ids, "_MOST_IDS", 4)
    text = np.array([20, 21, 1, 22, 23, 2, 24, 23], np.int32)
    assert found.of("a", text[:5]).tolist() == [20, 21, 22, 23]
    assert found.of("a", text[:7]).tolist() == [21, 22, 23, 24]
    assert found.of("a", text).tolist() == [21, 22, 23, 24]
    assert found.of("all at once", text).tolist() == [22, 23, 24]
