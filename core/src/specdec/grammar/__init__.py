"""Structured outputs: grammars that a sample's text must follow, through xgrammar."""
