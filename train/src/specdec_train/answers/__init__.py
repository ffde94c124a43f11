"""Training conversations: prompts from files or written by the target, answered by the target."""
