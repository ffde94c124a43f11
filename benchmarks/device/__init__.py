"""The device benchmark: a step of the engine, assisted generation side by side, and every kernel."""
