"""What the suites are made of: targets, texts, an engine's side of the contract, statistics."""
