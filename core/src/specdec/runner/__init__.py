"""Runs an unmodified `transformers` model on a paged KV cache."""
