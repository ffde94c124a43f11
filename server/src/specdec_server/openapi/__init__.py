"""The OpenAPI document: groups of operations, and what each takes and returns."""
