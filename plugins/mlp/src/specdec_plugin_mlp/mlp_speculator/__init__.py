"""`mlp_speculator`: a chain of heads, each told the token before the one it guesses."""
