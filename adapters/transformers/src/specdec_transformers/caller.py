"""Arguments of `generate` that transformers does not pass to a `custom_generate` function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import Any

from transformers import GenerationMixin

_GENERATE = inspect.unwrap(GenerationMixin.generate).__code__


def arguments_of_generate(frame: FrameType | None) -> Mapping[str, Any]:
    """Return the arguments of the running `generate`; empty if the caller is another function.

    transformers (source of 5.23) does not pass on `streamer` and `assistant_model`: a streamer would get the prompt and then
    nothing, and its reader would wait forever. The frame is the only way to access them.

    Args:
        frame: frame of the function that called ours.
    """
    if frame is None or frame.f_code is not _GENERATE:
        return {}
    return frame.f_locals
