"""Writes artefacts: complete folders in the published formats, replaced atomically."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# Notes of transformers 5 on how a tokenizer was loaded; they do not apply to a copy.
_TRANSIENT = frozenset({"backend", "is_local", "local_files_only"})


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that replaces it when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new, old = staging / "new", staging / "old"
        new.mkdir()
        yield new
        for file in new.iterdir():
            file.chmod(0o644)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        shutil.rmtree(staging)


def export_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a model for plain `transformers` and vLLM: bfloat16 safetensors and tokenizer files.

    Args:
        model: the model; cast to bfloat16 in place.
        tokenizer: its tokenizer, chat template included.
        folder: output folder; replaced as a whole.
    """
    with replaced_folder(folder) as staging:
        model.generation_config = GenerationConfig(
            bos_token_id=model.config.bos_token_id,
            eos_token_id=model.config.eos_token_id,
            pad_token_id=model.config.eos_token_id,
        )
        model.bfloat16().save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        _rewrite(staging / "config.json", _portable_model_config)
        _rewrite(staging / "tokenizer_config.json", _portable_tokenizer_config)
        _write_compact(staging / "tokenizer.json")


def _portable_model_config(config: dict[str, Any]) -> dict[str, Any]:
    """Add the keys that readers older than transformers 5 look for."""
    return config | {"torch_dtype": "bfloat16", "rope_theta": config["rope_parameters"]["rope_theta"]}


def _portable_tokenizer_config(config: dict[str, Any]) -> dict[str, Any]:
    """Use names that both transformers 4 and 5 know."""
    portable = config | {"tokenizer_class": "PreTrainedTokenizerFast"}
    portable["additional_special_tokens"] = portable.pop("extra_special_tokens")
    return {key: value for key, value in portable.items() if key not in _TRANSIENT}


def _rewrite(path: Path, change: Any) -> None:
    """Pass a JSON file through `change`."""
    changed = json.dumps(change(json.loads(path.read_text("utf-8"))), indent=2, sort_keys=True)
    path.write_text(changed + "\n", "utf-8")


def _write_compact(path: Path) -> None:
    """Write a tokenizer file without indentation, which is more than half of it, and each merge as one string."""
    content = json.loads(path.read_text("utf-8"))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    path.write_text(compact + "\n", "utf-8")
