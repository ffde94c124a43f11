"""A proposer beside the loop: what it may draft, what it is told, and what it returns, copied and checked."""
