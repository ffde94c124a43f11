"""Supported versions of vLLM."""

from __future__ import annotations

import logging
import os

from specdec import ConfigError

logger = logging.getLogger("specdec")

TESTED = ("0.32.0",)
"""Versions tested with `tests/real`."""
READ = ("0.33.0",)
"""Versions with the same signatures, not run."""
VARIABLE = "SPECDEC_VLLM_ANY_VERSION"
"""Environment variable that allows any version, with a warning."""


def check_version(version: str) -> None:
    """Raise for a version of vLLM whose internals may differ from those that the adapter uses.

    Raises:
        ConfigError: naming the version, the tested versions and how to skip the check.
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
