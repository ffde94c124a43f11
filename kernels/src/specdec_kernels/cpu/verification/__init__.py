"""Verification of drafts, compiled."""
