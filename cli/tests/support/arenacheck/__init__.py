"""Submissions of the arena for tests."""
