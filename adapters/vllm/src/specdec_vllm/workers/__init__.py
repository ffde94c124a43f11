"""vLLM workers with specdec proposers."""
