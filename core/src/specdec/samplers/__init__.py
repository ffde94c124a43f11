"""Samplers that come with core."""
