"""Top-k and top-p before a draw, and after it: how often a device reads or writes a row.

    python benchmarks/sampling_cuts.py [--vocab-size 16000] [--rows 4]

Reads are counted in Triton's interpreter, of rows of normal logits times 3: bytes that `process_logits` and `strict_verify`
load and store of logits, divided by the bytes of a row in float32. The tokens of both ways are the same.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from common.provenance import provenance
from common.results import RESULTS

KINDS: tuple[dict[str, Any], ...] = ({}, {"top_p": 0.95}, {"top_k": 50}, {"top_k": 50, "top_p": 0.95})
TEMPERATURE = 0.8


class Traffic:
    """Bytes of some tensors that kernels load and store in the interpreter, while it is entered."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._ranges: list[tuple[int, int]] = []

    def watch(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count what is loaded and stored of a tensor."""
        self._ranges.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes))
        return tensor

    def count(self, pointers: Any, mask: Any) -> None:
        """Add what is loaded or stored at pointers."""
        places, used = np.atleast_1d(pointers.data), np.atleast_1d(mask.data)
        for start, end in self._ranges:
            self.num_bytes += 4 * int(((places >= start) & (places < end) & used).sum())

    def __enter__(self) -> Traffic:
        from triton.runtime.interpreter import InterpreterBuilder as Builder

        self._load, self._store = Builder.create_masked_load, Builder.create_masked_store

        def load(builder: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
            self.count(pointers, mask)
            return self._load(builder, pointers, mask, *rest)

        def store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self.count(pointers, mask)
            return self._store(builder, pointers, value, mask, *rest)

        Builder.create_masked_load, Builder.create_masked_store = load, store
        return self

    def __exit__(self, *_: object) -> None:
        from triton.runtime.interpreter import InterpreterBuilder as Builder

        Builder.create_masked_load, Builder.create_masked_store = self._load, self._store


def passes(kind: dict[str, Any], vocab_size: int, num_rows: int) -> dict[str, list[float]]:
    """Return how often each row is read or written before and after."""
    from specdec_kernels.triton import Backend, use_backend
    from specdec_kernels.triton.noise import NoiseKeys
    from specdec_kernels.triton.process_logits import Cuts, process_logits
    from specdec_kernels.triton.strict_verify import RequestCuts, strict_verify

    generator, one = torch.Generator().manual_seed(0), torch.ones(1, dtype=torch.int64)
    found: dict[str, list[float]] = {"before": [], "after": []}
    for row in range(num_rows):
        logits, tokens = 3.0 * torch.randn(1, vocab_size, generator=generator), []
        for name, counts in found.items():
            top_k, top_p = kind.get("top_k", 0) * one, kind.get("top_p", 1.0) * torch.ones(1)
            given = {"top_k": top_k if "top_k" in kind else None, "top_p": top_p if "top_p" in kind else None}
            is_after = name == "after"
            cuts = Cuts(torch.full((1,), TEMPERATURE), None, *([None, None] if is_after else given.values()))
            with use_backend(Backend.TRITON), Traffic() as traffic:
                out = torch.empty_like(logits)
                traffic.watch(logits), traffic.watch(out)
                process_logits(logits, cuts, out=out)
                keys = NoiseKeys(one * row, one, one)
                batch = torch.empty(1, 0, dtype=torch.int64), 0 * one, 0 * one, torch.ones(1), keys
                late = RequestCuts(top_k, top_p) if is_after and kind else None
                tokens.append(strict_verify(out, *batch, cuts=late).token_ids.tolist())
            counts.append(round(traffic.num_bytes / logits.nbytes, 2))
        assert tokens[0] == tokens[1]
    return found


def main() -> None:
    """Count, print and write `results/sampling_cuts.json`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab-size", type=int, default=16000)
    parser.add_argument("--rows", type=int, default=4)
    given = parser.parse_args()
    rows = []
    for kind in KINDS:
        rows.append([kind, *passes(kind, given.vocab_size, given.rows).values()])
        print(*rows[-1], sep=" | ", flush=True)
    content = {
        "environment": provenance(),
        "settings": vars(given),
        "columns": ["sampling", "before", "after"],
        "rows": rows,
    }
    text = json.dumps(content, separators=(",", ":"))
    (RESULTS / "sampling_cuts.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
