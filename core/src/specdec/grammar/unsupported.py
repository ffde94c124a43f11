"""The error for a keyword of a JSON schema that a grammar cannot enforce."""

from specdec.errors import ConfigError


class UnsupportedKeyword(ConfigError):
    """A keyword that a grammar cannot enforce.

    Args:
        place: of the schema that has it.
        keyword: its name.
        why: what is wrong, and the remedy.
    """

    def __init__(self, place: str, keyword: str, why: str) -> None:
        super().__init__(f"SamplingParams: structured_outputs 'json': {keyword!r} at {place} {why}")
        self.keyword = keyword
