"""Which versions of vLLM this adapter was run with."""

from __future__ import annotations

import logging
import os

from specdec import ConfigError

logger = logging.getLogger("specdec")

TESTED = ("0.32.0",)
"""Run with the tests of `tests/real`."""
READ = ("0.33.0",)
"""Their signatures are the same; not run."""
VARIABLE = "SPECDEC_VLLM_ANY_VERSION"
"""Environment variable that lets any version pass, with a warning."""


def check_version(version: str) -> None:
    """Raise for a version of vLLM whose internals may differ from those that the adapter binds to.

    Raises:
        ConfigError: naming the version, those that were tested and the way past the check.
    """
    release = version.split("+")[0]
    if release in TESTED:
        return
    if release in READ or os.environ.get(VARIABLE) == "1":
        logger.warning("specdec-vllm was tested with vLLM %s and not with %s", ", ".join(TESTED), version)
        return
    raise ConfigError(
        f"specdec-vllm binds to internals of vLLM {', '.join(TESTED)} and this is {version}: install one of these, or set "
        f"{VARIABLE}=1 to try it"
    )
