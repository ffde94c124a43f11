"""`specdec tune`: finds the `speculative_config` that is fastest on given prompts."""
