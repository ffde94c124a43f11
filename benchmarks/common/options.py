"""The command line that all comparisons share."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

QUICK_PROMPTS, QUICK_TOKENS, QUICK_ROUNDS = 2, 16, 2


@dataclass(frozen=True)
class Options:
    """The parsed shared options."""

    model: str
    prompts: Path | None
    num_prompts: int
    max_tokens: int
    max_model_len: int
    rounds: int
    starts: int
    dtypes: tuple[str, ...]
    k: tuple[int, ...]
    lookup_min: int
    lookup_max: int
    draft: str | None
    head: str | None
    prefix: tuple[str, ...]
    json: Path | None
    is_quick: bool

    def as_dict(self) -> dict[str, object]:
        """Return the settings that are written to a result."""
        return {
            "model": Path(self.model).name,
            "prompts": None if self.prompts is None else self.prompts.name,
            "num_prompts": self.num_prompts,
            "max_tokens": self.max_tokens,
            "max_model_len": self.max_model_len,
            "rounds": self.rounds,
            "starts": self.starts,
            "k": list(self.k),
            "lookup": [self.lookup_min, self.lookup_max],
            "draft": "zoo" if self.draft is None else Path(self.draft).name,
            "head": "zoo" if self.head is None else Path(self.head).name,
            "prefix": shlex.join(self.prefix),
            "is_quick": self.is_quick,
        }


def make_parser(description: str, *, num_prompts: int, k: list[int]) -> argparse.ArgumentParser:
    """Return a parser with the shared options; the caller may add its own."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--model", default="zoo", help="a folder, a GGUF file, smollm2, or zoo (default)")
    add(
        "--prompts",
        type=Path,
        help="JSON lines with turns, prompt or prompt_token_ids; texts are asked as chats where the model has a "
        "chat template (default: the zoo's held-out prompts for zoo, HumanEval for other models)",
    )
    add("--num-prompts", type=int, default=num_prompts, help=f"prompts of one round (default {num_prompts})")
    add("--max-tokens", type=int, default=128, help="new tokens per prompt (default 128)")
    add("--max-model-len", type=int, default=1024, help="most tokens of a request (default 1024)")
    add("--rounds", type=int, default=9, help="paired rounds (default 9; bounds need at least 6)")
    add(
        "--starts",
        type=int,
        default=1,
        help="how often all engines are started, each time with that many rounds: processes of one configuration differ in "
        "speed for as long as they run (default 1)",
    )
    add("--dtypes", nargs="+", default=["float32", "bfloat16"], help="default: float32 bfloat16")
    add(
        "--k",
        type=int,
        nargs="*",
        default=k,
        help=f"tokens drafted (default {k}); none: no speculation only",
    )
    add("--lookup-min", type=int, default=1, help="shortest n-gram looked for, on both sides (default 1)")
    add("--lookup-max", type=int, default=4, help="longest n-gram looked for, on both sides (default 4)")
    add("--draft", help="folder of the draft model (default: the zoo's for this model)")
    add("--head", help="folder of the EAGLE-3 head (default: the zoo's for this model)")
    add("--prefix", default="", help="command before every engine's interpreter, such as 'chrt -r 1'")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: few prompts, short, two rounds, float32")
    return parser


def read_options(arguments: argparse.Namespace) -> Options:
    """Return the shared options, reduced for a quick run."""
    is_quick: bool = arguments.quick
    return Options(
        model=arguments.model,
        prompts=arguments.prompts,
        num_prompts=min(arguments.num_prompts, QUICK_PROMPTS) if is_quick else arguments.num_prompts,
        max_tokens=min(arguments.max_tokens, QUICK_TOKENS) if is_quick else arguments.max_tokens,
        max_model_len=arguments.max_model_len,
        rounds=min(arguments.rounds, QUICK_ROUNDS) if is_quick else arguments.rounds,
        starts=1 if is_quick else arguments.starts,
        dtypes=("float32",) if is_quick else tuple(arguments.dtypes),
        k=tuple(arguments.k[:1] if is_quick else arguments.k),
        lookup_min=arguments.lookup_min,
        lookup_max=arguments.lookup_max,
        draft=_folder("--draft", arguments.draft),
        head=_folder("--head", arguments.head),
        prefix=tuple(shlex.split(arguments.prefix)),
        json=arguments.json,
        is_quick=is_quick,
    )


def _folder(option: str, given: str | None) -> str | None:
    if given is None:
        return None
    if not (Path(given) / "config.json").exists():
        raise SystemExit(f"{option} {given}: no config.json there")
    return str(Path(given).resolve())
