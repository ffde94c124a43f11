"""The verify loop: schedule, propose, score, verify, commit."""
