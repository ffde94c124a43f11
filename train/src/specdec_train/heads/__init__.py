"""Training of heads: EAGLE-1, EAGLE-3, multi-token prediction, MLP speculators."""
