"""Gemma 4's assistants: layers that query the target's cached keys and values, and have none of their own."""
