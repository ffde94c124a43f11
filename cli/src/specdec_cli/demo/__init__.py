"""`specdec demo`: speculative decoding at work on prompts of a few kinds."""
