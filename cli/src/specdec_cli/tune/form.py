"""What is tried of each method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Form:
    """One way to run a method, tried with several k."""

    options: Mapping[str, Any] = field(default_factory=dict)
    depths: tuple[int, ...] = (3, 6)
    """Values of `num_speculative_tokens`."""
    learns: bool = True
    """Whether it may draft better for a prompt that it has seen; if not, one engine serves all `depths`."""
    is_for_devices: bool = False
    """Whether another method drafts the same on the CPU, faster."""


_HEAD = (
    Form(depths=(2, 3, 5), learns=False),
    Form({"draft_confidence_threshold": 0.25}, depths=(4,), learns=False),
)
_MLP = (Form(depths=(2, 3), learns=False),)
_FORMS: dict[str, tuple[Form, ...]] = {
    "ngram": (Form(depths=(3, 6, 12)),),
    "suffix": (Form(depths=(8, 24)),),
    "self": (
        Form({"weights": "int8"}, depths=(2, 4, 6), learns=False),
        Form({"weights": "int4", "head_weights": "int8"}, depths=(2, 4, 8), learns=False),
    ),
    "eagle3": _HEAD,
    "recycling": (Form(depths=(5, 10)),),
    "ngram_gpu": (Form(depths=(3, 6), is_for_devices=True),),
    "draft_model": (Form(depths=(2, 4, 6), learns=False),),
    "eagle": _HEAD,
    "mtp": (Form(depths=(1, 2, 3), learns=False),),
    "medusa": _MLP,
    "mlp_speculator": _MLP,
}
_OTHER = (Form(),)


def forms_of(method: str) -> tuple[Form, ...]:
    """Return what is tried of a method; of one that is not official, two values of k."""
    return _FORMS.get(method, _OTHER)


def place(method: str) -> int:
    """Return when a method is tried if time is short: those that are not official first, then those that pay most often."""
    return list(_FORMS).index(method) if method in _FORMS else -1
