"""What commands need beyond this package's own dependencies: its extras."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from specdec import ConfigError

DISTRIBUTION = "specdec-cli"


def check_extra(extra: str, what: str) -> None:
    """Raise if a package of an extra is not installed, before anything is loaded or measured.

    Args:
        extra: as in the metadata of this package.
        what: needs it, for the message.

    Raises:
        ConfigError: naming the packages and the extra.
    """
    missing = [name for name in _packages(extra) if not _is_installed(name)]
    if missing:
        raise ConfigError(f'{what} needs {", ".join(missing)}: pip install "{DISTRIBUTION}[{extra}]"')


@cache
def _packages(extra: str) -> list[str]:
    lines = [line.partition(";") for line in requires(DISTRIBUTION) or ()]
    wanted = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    found = [re.match(r"[\w.-]+", line) for line, _, marker in lines if wanted.search(marker)]
    return [name[0] for name in found if name]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
