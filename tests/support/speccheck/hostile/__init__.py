"""Proposers that do harm in every way we know, and a process that tries each under `LLM` and `AsyncLLM`."""
