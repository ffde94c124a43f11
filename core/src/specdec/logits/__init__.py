"""From the target's logits to p-logits: every sampling parameter, applied once per row, along the drafted path."""
