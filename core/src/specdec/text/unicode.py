"""Refuses text that UTF-8, and therefore every tokenizer, cannot encode."""

from __future__ import annotations

from specdec.errors import ConfigError


def check_unicode(text: str, where: str) -> None:
    """Check that a text has no unpaired surrogates.

    Args:
        text: the text.
        where: what the text is, for the message.

    Raises:
        ConfigError: naming the first surrogate and its index.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{where} has the unpaired surrogate {text[error.start]!r} at index {error.start}, which UTF-8 cannot encode: "
            "leave it out; if the text was read from bytes, decode them as UTF-8 with errors='replace'"
        ) from None
