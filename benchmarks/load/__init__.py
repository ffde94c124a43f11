"""Load test of a server: well-behaved and hostile clients, and measurements."""
