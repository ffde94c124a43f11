"""Folders of models and heads with random damage, and files beside them that nothing may open."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from speccheck.whole_folders import CONFIG, GGUF, KINDS, TARGET, WEIGHTS, base

INDEX = "model.safetensors.index.json"
DEEP = "[" * 100_000
VALUES: tuple[Any, ...] = (
    5, 0, -1, 10**9, 10**18, 2**64, 0.5, 1e308, float("inf"), float("nan"), True, False, None, "", "x", "../x", [], [5], [[]],
    ["x"], {}, {"x": 5}, {"x": {"x": []}}, [None],
)  # fmt: skip
CONFIG_KEYS = (
    "architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters",
    "rope_scaling", "rope_theta", "hidden_act", "tie_word_embeddings", "attention_bias", "torch_dtype", "dtype",
    "quantization_config", "layer_types", "sliding_window", "auto_map", "transformers_weights", "eos_token_id",
    "bos_token_id", "pad_token_id", "speculators_config", "speculators_model_type", "transformer_layer_config",
    "eagle_config", "eagle_aux_hidden_state_layer_ids", "draft_vocab_size", "target_hidden_size", "dflash_config",
    "block_size", "mask_token_id", "target_layer_ids", "num_target_layers", "num_nextn_predict_layers", "n_predict",
    "emb_dim", "inner_dim", "num_heads", "medusa_num_heads", "medusa", "text_config", "vision_config", "logit_scale",
    "norm_before_fc", "is_encoder_decoder", "use_cache", "initializer_range", "model", "layernorms", "tie_weights",
)  # fmt: skip
TOKENIZER_KEYS = (
    "tokenizer_class", "tokenizer_file", "vocab_file", "fast_tokenizer_files", "auto_map", "additional_special_tokens",
    "bos_token", "eos_token", "pad_token", "model_max_length", "added_tokens_decoder", "chat_template", "extra_special_tokens",
)  # fmt: skip
TEMPLATES = (
    "{% for", "{{ 1 / 0 }}", "{{ undefined.x.y }}", "{% include '../outside/secret.txt' %}", "{% extends '/etc/passwd' %}",
    "{% for i in range(10**9) %}x{% endfor %}", "{{ messages | tojson | fail }}",
    "{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}", "{{ ''.__class__.__mro__ }}", "\x00\xff", "{{ '" + "(" * 5000,
)  # fmt: skip


@dataclass
class Case:
    """One damaged folder."""

    seed: int
    folder: Path
    outside: Path
    """A folder beside it, with valid weights, configuration and tokenizer."""
    kind: str = ""
    done: list[str] = field(default_factory=list)
    """What was done to it."""

    @property
    def speculative_config(self) -> dict[str, Any] | None:
        """What names a head; every other one lets its method be inferred."""
        if self.kind in (TARGET, GGUF):
            return None
        named: dict[str, Any] = {} if self.seed % 3 == 0 else {"method": self.kind}
        return {"model": str(self.folder), "num_speculative_tokens": 2, **named}


def make(seed: int, root: Path) -> Case:
    """Return the case of a seed in an empty folder."""
    draw = random.Random(seed)
    case = Case(seed, root / "model", root / "outside", KINDS[seed % len(KINDS)])
    shutil.copytree(base(case.kind), case.folder)
    shutil.copytree(base(case.kind), case.outside)
    (case.outside / "secret.txt").write_text("secret")
    (case.outside / "tokenizer.4.0.0.json").write_bytes(b"{}")
    for _ in range(draw.choice((1, 1, 1, 2))):
        damages = _OF_GGUF if case.kind == GGUF else _DAMAGES
        damage = draw.choice(damages)
        case.done.append(f"{damage.__name__.strip('_')}: {damage(case, draw)}")
    return case


def _leads_out(case: Case, draw: random.Random) -> object:
    """Return a name that leads out of the folder, or that is none."""
    outside = draw.choice((WEIGHTS, CONFIG, "tokenizer.json", "secret.txt"))
    return draw.choice(
        (
            f"../outside/{WEIGHTS}", f"../outside/{WEIGHTS}", str(case.outside / WEIGHTS), f"x/../../outside/{WEIGHTS}",
            f"..\\outside\\{WEIGHTS}", f"{WEIGHTS}\0", "/dev/zero", "/dev/stdin", "CON", "", ".", "..", "/", 5, None, ["x"],
            f"./../outside/{outside}", f"C:\\{WEIGHTS}", "x" * 300, "link", "~/" + WEIGHTS, True, {},
        )
    )  # fmt: skip


def _link(case: Case, draw: random.Random) -> str:
    names = [
        *(p.name for p in case.folder.iterdir()),
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "added_tokens.json",
    ]
    name = draw.choice(names)
    there = draw.choice(
        (
            case.outside / name,
            Path("../outside") / name,
            Path("../outside/secret.txt"),
            Path("/dev/zero"),
            Path(name),
        )
    )
    _remove(case.folder / name)
    (case.folder / name).symlink_to(there)
    return f"{name} -> {there}"


def _pipe(case: Case, draw: random.Random) -> str:
    name = draw.choice([*(p.name for p in case.folder.iterdir()), "tokenizer.json", "generation_config.json"])
    _remove(case.folder / name)
    if draw.random() < 0.5:
        os.mkfifo(case.folder / name)
        return f"{name} is a pipe"
    (case.folder / name).mkdir()
    return f"{name} is a folder"


def _index(case: Case, draw: random.Random) -> str:
    file = case.folder / WEIGHTS
    names = _names_of(file)
    shard = "model-00001-of-00001.safetensors"
    if file.is_file() and draw.random() < 0.8:
        file.rename(case.folder / shard)
    elif file.is_file():
        file.unlink()
    (case.folder / "link").symlink_to("../outside/" + WEIGHTS)
    weight_map: Any = dict.fromkeys(names, shard)
    bad = _leads_out(case, draw)
    for name in names if draw.random() < 0.5 else draw.sample(names, 1):
        weight_map[name] = bad
    content: Any = {"metadata": {"total_size": 5}, "weight_map": weight_map}
    if draw.random() < 0.2:
        content = draw.choice(
            ([], {}, {"weight_map": 5}, {"weight_map": []}, {"weight_map": {}}, None, {"weight_map": None})
        )
        bad = content
    name = "pytorch_model.bin.index.json" if draw.random() < 0.1 else INDEX
    (case.folder / name).write_text(
        json.dumps(content) if draw.random() < 0.9 else draw.choice(("", "{", DEEP, "\0"))
    )
    return f"{name}: {bad!r}"


def _json(case: Case, draw: random.Random, name: str, keys: tuple[str, ...]) -> str:
    file = case.folder / name
    if not file.is_file() or file.is_symlink():
        return "nothing"
    try:
        config = json.loads(file.read_text())
        assert isinstance(config, dict)
    except (ValueError, RecursionError, AssertionError):
        return "nothing"
    how = draw.random()
    if how < 0.1:
        text = draw.choice(
            (
                "",
                "{",
                "[]",
                "5",
                "null",
                DEEP,
                "\0\1",
                '{"x": ' * 5000,
                "{" + '"x": 1' * 3 + "}",
                '{"vocab_size": ' + "9" * 6000 + "}",
            )
        )
        file.write_text(text)
        return f"{name} = {text[:20]!r}"
    if how < 0.2 and config:
        gone = draw.choice(sorted(config))
        del config[gone]
        told = f"without {gone}"
    else:
        known = sorted(config) if draw.random() < 0.5 else keys
        key, value = draw.choice(known), draw.choice(VALUES)
        if (
            key
            in ("auto_map", "tokenizer_file", "vocab_file", "transformers_weights", "fast_tokenizer_files")
            and draw.random() < 0.7
        ):
            value = draw.choice((
                {"AutoConfig": "../outside/x.X", "AutoTokenizer": ["../outside/x.X", None]},
                str(case.outside / "tokenizer.json"), "../outside/tokenizer.json", ["../outside/tokenizer.4.0.0.json"],
                "../outside/model.safetensors", {"AutoConfig": f"{case.outside}--x.X"},
            ))  # fmt: skip
        config[key] = value
        told = f"{key} = {value!r}"
    file.write_text(json.dumps(config))
    return f"{name}: {told}"


def _config(case: Case, draw: random.Random) -> str:
    return _json(case, draw, CONFIG, CONFIG_KEYS)


def _tokenizer(case: Case, draw: random.Random) -> str:
    if draw.random() < 0.3:
        return _bytes(case, draw, "tokenizer.json")
    if draw.random() < 0.2:
        return _json(
            case, draw, "tokenizer.json", ("model", "added_tokens", "pre_tokenizer", "decoder", "version")
        )
    return _json(case, draw, "tokenizer_config.json", TOKENIZER_KEYS)


def _template(case: Case, draw: random.Random) -> str:
    text = draw.choice(TEMPLATES)
    _remove(case.folder / "chat_template.jinja")
    (case.folder / "chat_template.jinja").write_bytes(text.encode("latin-1"))
    return repr(text[:40])


def _adapter(case: Case, draw: random.Random) -> str:
    base = draw.choice((str(case.outside), "../outside", 5))
    (case.folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    if draw.random() < 0.5:
        _remove(case.folder / CONFIG)
    return repr(base)


def _verifier(case: Case, draw: random.Random) -> str:
    value = draw.choice(
        (str(case.outside), "../outside", "./../outside", 5, None, "", "x\0", "~nobodyhere/x")
    )
    file = case.folder / CONFIG
    if not file.is_file():
        return "nothing"
    try:
        config = dict(json.loads(file.read_text()))
    except (ValueError, TypeError, RecursionError):
        return "nothing"
    config |= {
        "speculators_model_type": draw.choice(("eagle3", "eagle", "mtp", "dflash", 5, None, [])),
        "speculators_config": {
            "proposal_methods": [{"speculative_tokens": draw.choice((3, -1, "x", 10**9))}],
            "verifier": {"name_or_path": value},
        },
    }  # fmt: skip
    file.write_text(json.dumps(config))
    return repr(value)


def _bytes(case: Case, draw: random.Random, name: str = WEIGHTS) -> str:
    """Cut a file short, or change bytes of it."""
    file = case.folder / name
    if not file.is_file() or file.is_symlink():
        return "nothing"
    content = bytearray(file.read_bytes())
    how = draw.randrange(4)
    if how == 0:
        content = content[: draw.choice((0, 1, 7, 8, 9, 100, len(content) // 2, max(0, len(content) - 1)))]
    elif how == 1:
        for _ in range(draw.choice((1, 5, 50))):
            if content:
                content[draw.randrange(min(len(content), 3000))] = draw.randrange(256)
    elif how == 2:
        content += b"x" * 100
    else:
        content = bytearray(
            draw.choice(
                (b"version https://git-lfs.github.com/spec/v1\n", b"PK\3\4", b"\x80\2}q\0.", b"\0" * 4096)
            )
        )
    file.write_bytes(content)
    return f"{name}, way {how}, {len(content)} bytes"


def _header(case: Case, draw: random.Random) -> str:
    """Write a safetensors file whose header is no good."""
    file = case.folder / WEIGHTS
    if _names_of(file) == ["x"] or file.is_symlink():
        return "nothing"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    how = draw.randrange(8)
    name = draw.choice([key for key in header if key != "__metadata__"])
    length = None
    if how == 0:
        length = draw.choice((2**63, 2**64 - 1, 2**40, 0, len(content), len(content) - 8, 10**8))
    elif how == 1:
        header[name]["data_offsets"] = draw.choice(([0, 2**63], [-1, 5], [5, 0], [0, 8], ["a", "b"], 5, [0]))
    elif how == 2:
        header[name]["dtype"] = draw.choice(("F64", "I8", "BOOL", "X", 5, None, "F4", "F8_E4M3"))
    elif how == 3:
        header[name]["shape"] = draw.choice(
            (
                [-1],
                [2**62, 4],
                [],
                [0],
                "x",
                [1.5],
                [[1]],
                header[name]["shape"][::-1],
                [*header[name]["shape"], 1],
            )
        )
    elif how == 4:
        header[draw.choice(("x", "", "x" * 10_000, "lm_head.weight"))] = header.pop(name)
    elif how == 5:
        header["__metadata__"] = draw.choice(({}, 5, {"format": 5}, {"format": "tf"}, [], {"x": {}}))
    elif how == 6:
        del header[name]
    else:
        header = draw.choice(([], 5, None, "x", {}, {"x": 5}))
    text = json.dumps(header).encode()
    if draw.random() < 0.05:
        text = DEEP.encode()
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return f"way {how}, {name}"


def _tensors(case: Case, draw: random.Random) -> str:
    """Write valid safetensors that are others than the configuration says."""
    file = case.folder / WEIGHTS
    if _names_of(file) == ["x"] or file.is_symlink():
        return "nothing"
    tensors = load_file(file)
    name = draw.choice(sorted(tensors))
    how = draw.randrange(5)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = torch.zeros(draw.choice(((), (0,), (1,), (3, 5), (2, 2, 2))))
    elif how == 2:
        shape = tensors[name].shape
        kind = draw.choice((torch.int64, torch.uint8, torch.float64, torch.bool))
        tensors[name] = torch.full(shape, 7).to(kind)
    elif how == 3:
        tensors[name] = torch.full(tensors[name].shape, torch.nan)
    else:
        tensors = dict(draw.sample(sorted(tensors.items()), len(tensors) // 2))
    save_file(tensors, file, metadata={"format": "pt"})
    return f"way {how}, {name}"


def _gguf_bytes(case: Case, draw: random.Random) -> str:
    return _bytes(case, draw, "tiny.gguf")


def _gguf_name(case: Case, draw: random.Random) -> str:
    name = draw.choice(("tiny-00001-of-00002.gguf", "mmproj-x.gguf", "x.GGUF", "\n.gguf"))
    if (case.folder / "tiny.gguf").exists():
        (case.folder / "tiny.gguf").rename(case.folder / name)
    return repr(name)


def _neighbour(case: Case, draw: random.Random) -> str:
    """Put files beside a GGUF file that `transformers` would read."""
    name = draw.choice((CONFIG, "tokenizer_config.json", "generation_config.json", "adapter_config.json"))
    content = draw.choice((
        {"tokenizer_file": str(case.outside / "secret.txt")}, {"base_model_name_or_path": str(case.outside)}, [], 5,
        {"auto_map": {"AutoConfig": f"{case.outside}--x.X", "AutoTokenizer": ["x.X", None]}},
    ))  # fmt: skip
    (case.folder / name).write_text(json.dumps(content))
    return f"{name}: {content!r}"


_DAMAGES: tuple[Callable[[Case, random.Random], str], ...] = (
    _index, _index, _config, _config, _config, _link, _pipe, _tokenizer, _tokenizer, _template, _adapter, _verifier, _bytes,
    _header, _header, _tensors,
)  # fmt: skip
_OF_GGUF: tuple[Callable[[Case, random.Random], str], ...] = (
    _gguf_bytes, _gguf_bytes, _gguf_name, _link, _pipe, _neighbour,
)  # fmt: skip


def _names_of(file: Path) -> list[str]:
    """Return the names of a file's tensors, or one other name if it has been damaged already."""
    try:
        with safe_open(file, "pt") as opened:
            return list(opened.keys()) or ["x"]
    except Exception:
        return ["x"]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
