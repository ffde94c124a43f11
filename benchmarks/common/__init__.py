"""What all comparisons share: workers, rounds, statistics, the correctness gate, provenance."""
