from specdec.metrics import Counter, Vector
from specdec_server.speculation_log import _Counts, describe

PREFIX = "vllm:spec_decode_num_"


def counts(drafts: int, drafted: int, accepted: int, by_position: list[int]) -> _Counts:
    return _Counts.of(
        [
            Counter(PREFIX + "drafts", drafts),
            Counter(PREFIX + "draft_tokens", drafted),
            Counter(PREFIX + "accepted_tokens", accepted),
            Vector(PREFIX + "accepted_tokens_per_pos", by_position),
            Counter("specdec:num_steps", 99),
        ]
    )


def test_a_line_is_about_what_happened_since_the_last_one() -> None:
    line = describe(counts(10, 20, 5, [5]), counts(14, 32, 11, [8, 3]), 2.0)
    assert line == (
        "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 3.00 tokens/s, "
        "Drafted throughput: 6.00 tokens/s, Accepted: 6 tokens, Drafted: 12 tokens, "
        "Per-position acceptance rate: 0.750, 0.750, Avg Draft acceptance rate: 50.0%"
    )


def test_nothing_drafted_is_no_line() -> None:
    assert describe(counts(10, 20, 5, [5]), counts(10, 20, 5, [5]), 2.0) is None
