"""The chi-square statistic of texts against their exact law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from specdec_testing.support.chi_square import excess


def excess_of_texts(counts: Counter[tuple[int, ...]], law: Mapping[tuple[int, ...], float]) -> float:
    """Return chi-square over its threshold: below 1 passes; infinite if a text is not in the law."""
    texts = [*law, *(counts.keys() - law.keys())]
    return excess(
        np.array([counts[text] for text in texts]), np.array([law.get(text, 0.0) for text in texts])
    )
