"""Arguments of `generate` that transformers does not hand on to a function given as `custom_generate`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FrameType
from typing import Any

from transformers import GenerationMixin

_GENERATE = inspect.unwrap(GenerationMixin.generate).__code__


def arguments_of_generate(frame: FrameType | None) -> Mapping[str, Any]:
    """Return the arguments of the running `generate`, or nothing where the caller is another function.

    transformers (read in 5.23) keeps `streamer` and `assistant_model` to itself: a streamer would get the prompt and then
    nothing, and whoever reads from it would wait for ever. They are read from the frame, since nothing else leads to them.

    Args:
        frame: of the function that called ours.
    """
    if frame is None or frame.f_code is not _GENERATE:
        return {}
    return frame.f_locals
