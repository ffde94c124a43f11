"""Workers of vLLM with specdec's proposers."""
