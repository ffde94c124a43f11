"""A small target for heads that read its states, and requests that are held against a reference of a head."""
