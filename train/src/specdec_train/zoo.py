"""`python -m specdec_train.zoo`: the zoo target from nothing, or from where a killed run stopped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from specdec_train.export import export_target
from specdec_train.manifest import (
    corpus_facts,
    environment_facts,
    file_facts,
    prompt_facts,
    update_log,
    update_manifest,
)
from specdec_train.prompts import cut_prompts, write_prompts
from specdec_train.recipe import Recipe
from specdec_train.run import TrainedTarget, train_target
from specdec_train.target import next_token_loss
from specdec_train.tokenizer import encode

NUM_MEASURED_PROMPTS = 24
DEFAULT_OUT = Path("zoo/src/specdec_zoo")


def build_zoo(
    out: Path,
    work: Path,
    recipe: Recipe,
    *,
    command: str,
    max_minutes: float | None = None,
    resume: bool = False,
) -> TrainedTarget:
    """Train the target and write it with its prompts, manifest and training log.

    Args:
        out: folder that gets `artefacts/target/`, `prompts.jsonl`, `manifest.json`, `training_log.json`.
        work: folder for checkpoints.
        recipe: every number of the run.
        command: what the manifest names as the way to repeat this.
        max_minutes: time budget of the training steps.
        resume: continue the run in `work`.
    """
    trained = train_target(recipe, work, max_minutes=max_minutes, resume=resume)
    write_zoo(out, trained, recipe, command=command, max_minutes=max_minutes)
    return trained


def write_zoo(
    out: Path, trained: TrainedTarget, recipe: Recipe, *, command: str, max_minutes: float | None
) -> None:
    """Write everything of a finished run into `out`; see `build_zoo`."""
    out.mkdir(parents=True, exist_ok=True)
    prompts = cut_prompts(
        trained.corpus.split("heldout"), trained.tokenizer, per_kind=recipe.prompts_per_kind, seed=recipe.seed
    )
    write_prompts(prompts, out / "prompts.jsonl")
    ids = encode(trained.tokenizer, [prompt.prompt for prompt in prompts])
    with torch.no_grad():
        losses = [
            next_token_loss(trained.model, torch.tensor([row])).item() for row in ids[:NUM_MEASURED_PROMPTS]
        ]
    target = out / "artefacts" / "target"
    num_parameters = trained.model.num_parameters()
    export_target(trained.model, trained.tokenizer, target)
    state = trained.state
    tokens_seen = state.step * recipe.tokens_per_step
    facts = {
        "command": command,
        "environment": environment_facts(),
        "files": file_facts(target),
        "heldout": asdict(trained.heldout)
        | {"prompts_nats_per_token": sum(losses) / len(losses), "prompts_measured": len(losses)},
        "num_parameters": num_parameters,
        "recipe": asdict(recipe),
        "training": {
            "steps": state.step,
            "steps_planned": recipe.max_steps,
            "seconds": round(state.seconds),
            "seconds_allowed": None if max_minutes is None else round(max_minutes * 60),
            "tokens_seen": tokens_seen,
            "tokens_per_epoch": trained.num_train_tokens,
            "epochs": round(tokens_seen / trained.num_train_tokens, 2),
            "tokens_per_second": round(tokens_seen / state.seconds) if state.seconds else None,
            "threads": recipe.threads,
        },
    }
    prompt_section = prompt_facts(prompts, [len(row) for row in ids])
    update_manifest(
        out / "manifest.json",
        {"corpus": corpus_facts(trained.corpus), "prompts": prompt_section},
        {"target": facts},
    )
    update_log(out / "training_log.json", "target", state.log)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command-line entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m specdec_train.zoo", description=__doc__)
    parser.add_argument("--out", type=Path, help=f"folder to write into (default: {DEFAULT_OUT.as_posix()})")
    parser.add_argument(
        "--work", type=Path, help="folder for checkpoints (default: build/zoo, tiny: build/zoo-tiny)"
    )
    parser.add_argument("--tiny", action="store_true", help="a recipe of seconds, for tests")
    parser.add_argument("--max-minutes", type=float, help="time budget; the learning rate decays within it")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    options = parser.parse_args(arguments)
    disable_progress_bar()
    out: Path = options.out or DEFAULT_OUT
    words = ["python -m specdec_train.zoo"]
    words += [f"--out {options.out.as_posix()}"] if options.out else []
    words += ["--tiny"] * options.tiny
    words += [f"--max-minutes {options.max_minutes:g}"] if options.max_minutes is not None else []
    try:
        if options.out is None and not out.is_dir():
            raise ValueError(
                f"there is no {out} here; run from the root of the repository or name a folder with --out"
            )
        trained = build_zoo(
            out,
            options.work or Path("build") / ("zoo-tiny" if options.tiny else "zoo"),
            Recipe.tiny() if options.tiny else Recipe(),
            command=" ".join(words),
            max_minutes=options.max_minutes,
            resume=options.resume,
        )
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{out}: held-out loss {trained.heldout.nats_per_token:.3f} nats per token")
    return 0


if __name__ == "__main__":
    sys.exit(main())
