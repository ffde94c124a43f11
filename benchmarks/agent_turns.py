"""Run `specdec bench` on what an agent asks: one file, and eight small edits of it in one conversation.

    python benchmarks/agent_turns.py [OPTIONS OF specdec bench]

Every turn asks for the whole file with one change, as agents do that write files anew. Runs are greedy, deterministic and in
bfloat16, with prefix caching enabled as in serving. The default is `auto` on SmolLM2.
"""

from __future__ import annotations

import argparse
import sys

from common.questions import bench

SETTINGS = """\
import json
from pathlib import Path

FILE = Path("settings.json")
TIMEOUT = 10


class Settings:
    def __init__(self, values):
        self.values = values

    def get(self, name, default=None):
        return self.values.get(name, default)

    def save(self):
        FILE.write_text(json.dumps(self.values))


def load():
    if not FILE.exists():
        return Settings({})
    return Settings(json.loads(FILE.read_text()))
"""
PRICES = """\
import csv


def read_prices(path):
    prices = {}
    with open(path) as file:
        for row in csv.DictReader(file):
            prices[row["name"]] = float(row["price"])
    return prices


def total(order, prices):
    amount = 0
    for name, count in order.items():
        amount += prices[name] * count
    return amount


def with_tax(amount, rate=0.19):
    return round(amount * (1 + rate), 2)
"""
COMPOSE = """\
services:
  web:
    image: example/web:1.4
    ports:
      - "8080:80"
    environment:
      LOG_LEVEL: info
      DATABASE: postgres://database/app
    depends_on:
      - database
  database:
    image: postgres:16
    environment:
      POSTGRES_DB: app
    volumes:
      - data:/var/lib/postgresql/data
volumes:
  data:
"""
TASKS = {
    "settings.py": (
        SETTINGS,
        "Change TIMEOUT to 30.",
        "Rename the class Settings to Config.",
        "Let save() write JSON with an indent of 4.",
        "Rename the method get to lookup.",
        'Change the name of the file to "config.json".',
        "Rename the function load to read.",
        'Read and write the file with encoding="utf-8".',
        "Add a comment above TIMEOUT that says that it is in seconds.",
    ),
    "prices.py": (
        PRICES,
        "Rename the function total to sum_of.",
        "Change the rate of the tax to 0.21.",
        'Open the file with newline="".',
        "Rename the variable amount to result in both functions.",
        'Use the column "cost" instead of "price".',
        "Round to three digits.",
        "Rename the argument path to file_name.",
        "Rename the function with_tax to after_tax.",
    ),
    "compose.yaml": (
        COMPOSE,
        "Change the port 8080 to 9090.",
        "Use the image postgres:17.",
        "Set LOG_LEVEL to debug.",
        "Rename the service web to shop.",
        "Use the image example/web:1.5.",
        "Rename the volume data to tables.",
        "Change the name of the database from app to shop in both places.",
        "Set LOG_LEVEL to warning.",
    ),
}
"""File, and the changes asked for."""


def turns(name: str, text: str, changes: tuple[str, ...]) -> list[str]:
    """Return what the user says in one conversation."""
    opening = (
        f"This is {name}:\n\n```\n{text}```\n\n{changes[0]} Answer with the whole file and nothing else."
    )
    return [opening, *(f"{change} Answer with the whole file and nothing else." for change in changes[1:])]


def main() -> int:
    """Run `specdec bench` on the conversations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _, options = parser.parse_known_args()
    tasks = [(name, turns(name, text, tuple(changes))) for name, (text, *changes) in TASKS.items()]
    return bench(tasks, options, '{"method": "auto"}')


if __name__ == "__main__":
    sys.exit(main())
