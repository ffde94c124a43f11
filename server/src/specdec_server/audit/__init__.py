"""`specdec audit`: whether a server's output is the same with speculative decoding as without."""
