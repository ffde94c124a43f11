"""Building blocks of the suites: targets, texts, the engine's side of the contract, statistics."""
