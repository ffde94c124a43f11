"""`python -m zoo_recipe`: the zoo's models from nothing, or from where a killed run stopped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from specdec_train.export import export_model, replaced_folder
from specdec_train.heads.data import text_data
from specdec_train.heads.made import to_bfloat16
from specdec_train.heads.recipe import ZOO_HEADS, HeadRecipe
from specdec_train.heads.run import TrainedHead, facts_of, train_head
from zoo_recipe.corpus import read_corpus, stdlib_root
from zoo_recipe.documents import training_texts
from zoo_recipe.draft_recipe import DRAFTS, DraftRecipe
from zoo_recipe.draft_run import TrainedDraft, load_artefact, train_draft
from zoo_recipe.manifest import (
    corpus_facts,
    environment_facts,
    file_facts,
    prompt_facts,
    training_facts,
    update_log,
    update_manifest,
)
from zoo_recipe.prompts import cut_prompts, write_prompts
from zoo_recipe.recipe import Recipe
from zoo_recipe.run import TrainedTarget, train_target
from zoo_recipe.target import next_token_loss
from zoo_recipe.tokenizer import END_OF_TEXT, encode, load_tokenizer, token_id

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
        out: output folder for `artefacts/target/`, `prompts.jsonl.xz`, `manifest.json`, `training_log.json`.
        work: folder for checkpoints.
        recipe: all hyperparameters of the run.
        command: command for the manifest, which repeats this run.
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
    write_prompts(prompts, out / "prompts.jsonl.xz")
    ids = encode(trained.tokenizer, [prompt.prompt for prompt in prompts])
    with torch.no_grad():
        losses = [
            next_token_loss(trained.model, torch.tensor([row])).item() for row in ids[:NUM_MEASURED_PROMPTS]
        ]
    target = out / "artefacts" / "target"
    num_parameters = trained.model.num_parameters()
    export_model(trained.model, trained.tokenizer, target)
    facts = {
        "command": command,
        "environment": environment_facts(),
        "files": file_facts(target),
        "heldout": asdict(trained.heldout)
        | {"prompts_nats_per_token": sum(losses) / len(losses), "prompts_measured": len(losses)},
        "num_parameters": num_parameters,
        "recipe": asdict(recipe),
        "training": training_facts(trained.state, recipe, trained.num_train_tokens, max_minutes)
        | {"steps_planned": recipe.max_steps + recipe.growth.max_steps},
    }
    prompt_section = prompt_facts(prompts, [len(row) for row in ids])
    update_manifest(
        out / "manifest.json",
        {"corpus": corpus_facts(trained.corpus), "prompts": prompt_section},
        {"target": facts},
    )
    update_log(out / "training_log.json", "target", trained.state.log)


def build_draft(
    out: Path,
    work: Path,
    name: str,
    recipe: DraftRecipe,
    corpus_recipe: Recipe,
    *,
    command: str,
    max_minutes: float | None = None,
    resume: bool = False,
) -> TrainedDraft:
    """Train a draft model for the target in `out` and add it to the artefacts there.

    Args:
        out: folder that `build_zoo` has written.
        work: folder for checkpoints.
        name: name of the artefact.
        recipe: all hyperparameters of the run.
        corpus_recipe: the target's recipe, for the corpus.
        command: command for the manifest, which repeats this run.
        max_minutes: time budget of the training steps.
        resume: continue the run in `work`.

    Raises:
        ValueError: a model it needs is missing, or `work` holds a run of another recipe.
    """
    artefacts = out / "artefacts"
    trained = train_draft(recipe, corpus_recipe, artefacts, work, max_minutes=max_minutes, resume=resume)
    num_parameters = trained.model.num_parameters()
    export_model(trained.model, trained.tokenizer, artefacts / name)
    facts = {
        "command": command,
        "environment": environment_facts(),
        "files": file_facts(artefacts / name),
        "heldout": asdict(trained.heldout) | {"acceptance": trained.acceptance},
        "num_parameters": num_parameters,
        "recipe": asdict(recipe),
        "training": training_facts(trained.state, recipe, trained.num_train_tokens, max_minutes),
    }
    update_manifest(out / "manifest.json", {}, {name: facts})
    update_log(out / "training_log.json", name, trained.state.log)
    return trained


def build_head(
    out: Path,
    work: Path,
    name: str,
    recipe: HeadRecipe,
    corpus_recipe: Recipe,
    *,
    command: str,
    max_minutes: float | None = None,
    resume: bool = False,
) -> TrainedHead:
    """Train a head for the target in `out` and add it to the artefacts there; arguments as for `build_draft`.

    Raises:
        ValueError: the target is missing, or `work` holds a run of another recipe.
    """
    artefacts = out / "artefacts"
    target = load_artefact(artefacts / "target")
    tokenizer = load_tokenizer(artefacts / "target")
    corpus = read_corpus(
        stdlib_root(), heldout_permille=corpus_recipe.heldout_permille, only=corpus_recipe.only
    )
    trained = train_head(
        recipe,
        target,
        text_data(
            recipe,
            encode(tokenizer, training_texts(corpus, corpus_recipe)),
            encode(tokenizer, [file.text for file in corpus.split("heldout")]),
            token_id(tokenizer, END_OF_TEXT),
        ),
        work,
        max_minutes=max_minutes,
        resume=resume,
    )
    to_bfloat16(trained.made.module)
    with replaced_folder(artefacts / name) as staging:
        trained.made.write(staging)
    facts = {
        "command": command,
        "environment": environment_facts(),
        "files": file_facts(artefacts / name),
        "training": training_facts(trained.state, recipe, trained.num_train_tokens, max_minutes),
        **facts_of(trained, recipe),
    }
    update_manifest(out / "manifest.json", {}, {name: facts})
    update_log(out / "training_log.json", name, trained.state.log)
    return trained


def main(arguments: Sequence[str] | None = None) -> int:
    """Command-line entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="PYTHONPATH=scripts python -m zoo_recipe", description=__doc__)
    parser.add_argument("--out", type=Path, help=f"folder to write into (default: {DEFAULT_OUT.as_posix()})")
    parser.add_argument(
        "--work", type=Path, help="folder for checkpoints (default: build/zoo, tiny: build/zoo-tiny)"
    )
    parser.add_argument("--tiny", action="store_true", help="a recipe of seconds, for tests")
    parser.add_argument("--max-minutes", type=float, help="time budget; the learning rate decays within it")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument(
        "--artefact",
        choices=["target", *DRAFTS, *ZOO_HEADS],
        help="train this model only; a draft or head needs the target (default: all that are shipped, one after the other)",
    )
    options = parser.parse_args(arguments)
    disable_progress_bar()
    out: Path = options.out or DEFAULT_OUT
    words = ["PYTHONPATH=scripts python -m zoo_recipe"]
    words += [f"--out {options.out.as_posix()}"] if options.out else []
    words += ["--tiny"] * options.tiny
    words += [f"--max-minutes {options.max_minutes:g}"] if options.max_minutes is not None else []
    work = options.work or Path("build") / ("zoo-tiny" if options.tiny else "zoo")
    recipe = Recipe.tiny() if options.tiny else Recipe()
    try:
        if options.out is None and not out.is_dir():
            raise ValueError(
                f"there is no {out} here; run from the root of the repository or name a folder with --out"
            )
        for name in [options.artefact] if options.artefact else ["target", *DRAFTS, *ZOO_HEADS]:
            limits = {
                "command": " ".join([*words, f"--artefact {name}"]),
                "max_minutes": options.max_minutes,
                "resume": options.resume,
            }
            if name == "target":
                heldout = build_zoo(out, work, recipe, **limits).heldout.nats_per_token
            elif name in ZOO_HEADS:
                head_recipe = ZOO_HEADS[name].tiny() if options.tiny else ZOO_HEADS[name]
                heldout = build_head(out, work / name, name, head_recipe, recipe, **limits).heldout_loss
            else:
                draft_recipe = DRAFTS[name].tiny() if options.tiny else DRAFTS[name]
                draft = build_draft(out, work / name, name, draft_recipe, recipe, **limits)
                heldout = draft.heldout.nats_per_token
            print(f"{out}: {name}: held-out loss {heldout:.3f} nats per token", flush=True)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
