"""Random heads in every published layout, a plain reference of what they compute, and a driver that compares."""
