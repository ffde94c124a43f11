"""Streams generated text to the standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec import RequestOutput


def show_stream(
    outputs: Iterable[RequestOutput],
    tokenizer: PreTrainedTokenizerBase,
    *,
    is_coloured: bool,
    is_wrapped: bool = False,
) -> RequestOutput:
    """Write the text of a request as it is generated; return the finished output.

    Args:
        outputs: the outputs of the request, as `LLM.stream` yields them.
        tokenizer: the target's tokenizer.
        is_coloured: whether accepted drafts are coloured, if the standard output supports colours.
        is_wrapped: whether lines are broken between words, on a terminal.
    """
    from specdec_cli.text.highlight import GrowingText, TextSpan, paint, supports_color
    from specdec_cli.text.word_wrap import WordWrap

    is_coloured = is_coloured and supports_color()
    wrap = WordWrap(get_terminal_size().columns) if is_wrapped and sys.stdout.isatty() else None

    def write(parts: Iterable[tuple[str, bool]]) -> None:
        for text, is_guessed in parts:
            sys.stdout.write(paint(TextSpan(text, is_guessed), is_coloured=is_coloured))

    growing: GrowingText | None = None
    last: RequestOutput | None = None
    for last in outputs:
        if growing is None:
            growing = GrowingText(tokenizer, last.prompt_token_ids)
        for span in growing.update(last.outputs[0]):
            part = span.text, span.is_guessed
            write([part] if wrap is None else wrap.add(*part))
        sys.stdout.flush()
    if wrap is not None:
        write(wrap.flush())
    assert last is not None
    return last
