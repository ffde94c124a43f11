"""What several test suites share: tiny models, proposers of every temper, and the comparison with `transformers`."""
