"""Conversations to train on: prompts from files or from the target itself, answered by the target."""
