"""Compiled loops for small float32 passes on the host, where calls of many tiny operations would cost more than they do."""
