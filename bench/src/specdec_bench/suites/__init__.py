"""Published benchmarks, whose questions are run as conversations."""

from specdec_bench.suites.comparison import OVERALL, SuiteComparison
from specdec_bench.suites.group import grouped
from specdec_bench.suites.load import SUITES, Chats, chats_of, load_suite
from specdec_bench.suites.question import Question, Suite
from specdec_bench.suites.sample import even_sample

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
