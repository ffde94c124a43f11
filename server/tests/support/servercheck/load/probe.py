"""Measures how long `/health` takes, in a process of its own: `python probe.py PORT SECONDS`, results as JSON.

It also measures how late the machine itself wakes a process that sleeps, which no server can be faster than.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

PERIOD_S = 0.02


def main() -> None:
    """Measure, and write the milliseconds of every request and of every wake-up."""
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    due, health, late = time.monotonic(), [], []
    until = due + seconds
    while (begun := time.monotonic()) < until:
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        took = time.monotonic() - begun
        # Requests that were due meanwhile would have waited as well.
        health += [(took - waited * PERIOD_S) * 1000 for waited in range(1 + int(took / PERIOD_S))]
        due = max(due + PERIOD_S, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)
        late.append((time.monotonic() - due) * 1000)
    json.dump({"health": health, "late": late}, sys.stdout)


main()
