"""Published benchmarks, whose questions are run as conversations."""

from specdec_cli.bench.suites.comparison import OVERALL, SuiteComparison
from specdec_cli.bench.suites.group import grouped
from specdec_cli.bench.suites.load import SUITES, Chats, chats_of, load_suite
from specdec_cli.bench.suites.question import Question, Suite
from specdec_cli.bench.suites.sample import even_sample

__all__ = [
    "OVERALL",
    "SUITES",
    "Chats",
    "Question",
    "Suite",
    "SuiteComparison",
    "chats_of",
    "even_sample",
    "grouped",
    "load_suite",
]
