"""Warnings of commands that make many engines."""

from __future__ import annotations

import logging

import pytest

from specdec_cli.bench.notices import notices_once


def test_a_notice_that_comes_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("specdec")
    with notices_once():
        for text in ("slow", "slow", "slower"):
            logger.warning("it is %s", text)
    logger.warning("it is %s", "slow")
    assert [record.getMessage() for record in caplog.records] == ["it is slow", "it is slower", "it is slow"]
