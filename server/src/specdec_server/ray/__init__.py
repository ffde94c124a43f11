"""The server as an application of Ray Serve: `serve run specdec_server.ray:app model=zoo num_replicas=2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_server.ray.arguments import read_arguments

__all__ = ["app"]


def app(args: Mapping[str, Any]) -> Any:
    """Return an application of Ray Serve, for use as its `import_path`.

    Args:
        args: arguments after the application on Ray's command line or under `args` in its file; see `RayArguments`.

    Raises:
        ConfigError: naming the argument that is wrong, or if Ray is not installed.
    """
    arguments = read_arguments(args)
    from specdec_server.ray.deployment import deployment

    return deployment(arguments)
