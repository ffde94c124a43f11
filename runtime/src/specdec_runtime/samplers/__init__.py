"""Samplers that are not lossless: `typical`, which accepts plausible tokens, and `synthetic`, which accepts at given rates."""
