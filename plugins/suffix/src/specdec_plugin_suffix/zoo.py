"""The responses that `specdec-zoo` has for a target."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from transformers import PretrainedConfig

from specdec import ConfigError

ZOO = Path("zoo")
"""The value of `suffix_decoding_cache_path` that selects the zoo's file for the target."""
_FILE = "responses.xz"


def zoo_responses(target: PretrainedConfig) -> Path:
    """Return the zoo's cache file for a target.

    Args:
        target: the target's configuration.

    Raises:
        ConfigError: if the zoo is not installed or has no responses for this target.
    """
    origin = f"suffix_decoding_cache_path: {str(ZOO)!r}"
    try:
        found: Path = import_module("specdec_zoo").draft("suffix", target.to_dict())
    except ImportError as error:
        raise ConfigError(f"{origin} needs the zoo: pip install specdec-zoo ({error})") from None
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}; name a file of your own, or leave it out") from None
    return found / _FILE
