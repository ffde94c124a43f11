"""specdec-kernels: backends that run models, attention and verification faster than core does with torch.

`cpu`: compiled loops. `layers`: fused torch layers. `cuda`: graphs, paged attention and device verification, made of the
operations in `triton`. `AttendedRows` lets a proposer's layers attend to a part of the cache; `can_record` says whether a
proposer may record graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_kernels.attended_rows import AttendedRows
    from specdec_kernels.recordable import can_record

__all__ = ["AttendedRows", "can_record"]

__getattr__ = lazily(__name__)
