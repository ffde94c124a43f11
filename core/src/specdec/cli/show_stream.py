"""Streams generated text to the standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec.outputs import RequestOutput


def show_stream(
    outputs: Iterable[RequestOutput], tokenizer: PreTrainedTokenizerBase, *, is_coloured: bool
) -> RequestOutput:
    """Write the text of a request as it is generated; return the finished output.

    Args:
        outputs: the outputs of the request, as `LLM.stream` yields them.
        tokenizer: the target's tokenizer.
        is_coloured: whether accepted drafts are coloured, if the standard output supports colours.
    """
    from specdec.cli.highlight import GrowingText, paint, takes_colour

    is_coloured = is_coloured and takes_colour()
    growing: GrowingText | None = None
    last: RequestOutput | None = None
    for last in outputs:
        if growing is None:
            growing = GrowingText(tokenizer, last.prompt_token_ids)
        for piece in growing.update(last.outputs[0]):
            sys.stdout.write(paint(piece, is_coloured=is_coloured))
        sys.stdout.flush()
    assert last is not None
    return last
