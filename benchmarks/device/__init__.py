"""The device benchmark: engine steps, comparison with assisted generation, and every kernel."""
