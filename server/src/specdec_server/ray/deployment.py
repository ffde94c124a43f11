"""Ray Serve deployment of the replicas."""

from __future__ import annotations

from typing import Any

from specdec import ConfigError
from specdec_server.ray.arguments import RayArguments

ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Ray's own router: sends requests with the same `x-session-id` to the same replica, for prefix cache hits."""


def deployment(arguments: RayArguments) -> Any:
    """Return the application for arguments.

    Raises:
        ConfigError: if Ray Serve is not installed.
    """
    try:
        from ray import serve  # type: ignore[import-not-found]  # an extra
        from ray.serve.config import RequestRouterConfig  # type: ignore[import-not-found]  # an extra
    except ImportError as error:
        raise ConfigError(
            f'Ray Serve cannot be imported ({error}): pip install "specdec-server[ray]"'
        ) from None
    from specdec_server.ray.replica import Replica

    served = serve.deployment(
        serve.ingress()(Replica),
        name="specdec",
        max_ongoing_requests=arguments.max_ongoing_requests,
        max_queued_requests=arguments.max_queued_requests,
        health_check_period_s=arguments.health_check_period_s,
        graceful_shutdown_timeout_s=arguments.graceful_shutdown_timeout_s,
        ray_actor_options={"num_cpus": arguments.num_cpus, "num_gpus": arguments.num_gpus},
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
        **arguments.scale,
    )
    return served.bind(arguments)
