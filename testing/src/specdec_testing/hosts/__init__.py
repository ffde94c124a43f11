"""The suite for adapters: what every engine owes the proposers that it hosts."""

from __future__ import annotations

from specdec_testing.hosts.host import Host, find_host, target_for
from specdec_testing.hosts.suite import HostConformance

__all__ = ["Host", "HostConformance", "find_host", "target_for"]
