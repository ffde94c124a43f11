"""`specdec audit`: checks whether a server's output is the same with and without speculative decoding."""
