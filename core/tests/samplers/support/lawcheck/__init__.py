"""Exact enumeration and simulation of verifiers: what shows that their output follows the target's distribution."""
