"""Makes first imports cheaper, of which torch and transformers need seconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no cycles while modules are imported: collections walk all that modules make again and again.

    They are a fifth of the time of importing torch and transformers. What was made is in the oldest generation
    afterwards, where collections would have put it.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else the caller keeps some objects frozen
            gc.freeze()
            gc.unfreeze()
        gc.enable()
