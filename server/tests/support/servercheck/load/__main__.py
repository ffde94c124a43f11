"""`PYTHONPATH=server/tests/support python -m servercheck.load --seconds 600 --model smollm2`."""

from __future__ import annotations

import argparse
import json
import sys

from servercheck.load.run import Plan, missed, run, shown


def main() -> int:
    """Run it and write the report as JSON; the exit code is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--hostile", type=int, default=3, help="clients at once")
    parser.add_argument("--honest", type=int, default=2, help="clients at once")
    parser.add_argument("--log", help="where to write the server's log")
    given = parser.parse_args()
    report = run(Plan(given.seconds, given.model, given.hostile, given.honest, settle_s=15.0))
    if given.log:
        with open(given.log, "w") as file:
            file.write(report.log)
    print(json.dumps(shown(report), indent=1))
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
