"""Code shared by all comparisons: workers, rounds, statistics, the correctness gate, provenance."""
