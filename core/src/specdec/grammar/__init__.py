"""Structured outputs: grammars that constrain a sample's text, through xgrammar."""
