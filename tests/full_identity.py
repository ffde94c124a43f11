"""Writes tests/results/identity.json: the zoo's target against `transformers`, every method, k and batch size.

python tests/full_identity.py [NUM_PROMPTS [MAX_TOKENS]]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import specdec_zoo

sys.path.insert(0, str(Path(__file__).parent / "support"))

from speccheck.zoo_run import RESULTS, run_all, write  # found through the line above


def main() -> int:
    """Run, write, and return 1 if anything differs."""
    sizes = [int(argument) for argument in sys.argv[1:]]
    num_prompts, max_tokens = [*sizes, *(200, 128)[len(sizes) :]]
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    result = run_all(model, num_prompts, max_tokens)
    write(result, RESULTS / "identity.json")
    for row in result["rows"]:
        print(
            f"{row['name']}: {row['identical_prompts']}/{row['num_prompts']} identical, {len(row['ties'])} ties"
        )
    return int(any(row["errors"] or row["ties"] for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
