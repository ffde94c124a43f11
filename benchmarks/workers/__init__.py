"""One module per engine; each runs as `python -m workers.<engine>_worker` in its engine's environment."""
