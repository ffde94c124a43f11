"""Drafts that need no proposer: tokens that a request's own rules force, and the output that its caller predicts."""
