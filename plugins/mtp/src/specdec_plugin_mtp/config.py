"""The configuration keys of `mtp`."""

from __future__ import annotations

from specdec_runtime.drafting import HeadConfig


class MtpConfig(HeadConfig):
    """How the target's own layers draft; `model` is only for layers in a separate directory, or an assistant."""
