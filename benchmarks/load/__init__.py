"""A server under load: its clients, good and hostile, and what is measured beside them."""
