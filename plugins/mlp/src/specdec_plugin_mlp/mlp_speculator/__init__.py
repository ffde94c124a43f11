"""`mlp_speculator`: a chain of heads, each conditioned on the previous token."""
