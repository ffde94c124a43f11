"""Structural tags: free text with parts that must have a form, in xgrammar's format, as grammars of llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from specdec import ConfigError
from specdec_runtime.structured_outputs.schema import BOUNDED, guided, lark_grammar, portable

_KEYS = {
    "const_string": ("value",), "regex": ("pattern", "excludes"), "any_text": ("excludes",), "grammar": ("grammar",),
    "json_schema": ("json_schema", "max_whitespace_cnt"), "sequence": ("elements",), "or": ("elements",),
    "optional": ("content",), "star": ("content",), "plus": ("content",), "tag": ("begin", "content", "end"),
    "triggered_tags": ("triggers", "tags", "at_least_one", "stop_after_first"),
    "tags_with_separator": ("tags", "separator", "at_least_one", "stop_after_first"),
}  # fmt: skip
_ANY = "/(?s:.*)/"
_HOLE = "\ufdd0"
_TIMES = {"optional": "?", "star": "*", "plus": "+"}


@dataclass(frozen=True)
class _Fragment:
    text: str
    """In Lark's form."""
    is_regular: bool
    """Whether it may stand in a terminal. Neighbours that may become one, since of two terminals the first takes all it can."""
    pieces: tuple[_Fragment, ...] = ()
    """Of a sequence that is not regular."""


def tag_grammar(tag: str | Mapping[str, Any], lark_of: Callable[[str], str]) -> str:
    """Return a structural tag as a grammar of llguidance.

    Args:
        tag: as text or mapping.
        lark_of: turns a grammar in EBNF into Lark's form.

    Raises:
        ConfigError: naming what is not supported.
    """
    try:
        root = json.loads(tag if isinstance(tag, str) else json.dumps(tag, allow_nan=False))
        return _Writer(root, lark_of).grammar(root["format"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"SamplingParams: structured_outputs 'structural_tag' cannot be compiled: {type(error).__name__}: {error}"
        ) from None


class _Writer:
    def __init__(self, root: Any, lark_of: Callable[[str], str]) -> None:
        self._lark_of = lark_of
        self._lines: list[str] = []
        self._others: list[dict[str, str]] = []
        # Only JSON with the same whitespace is told apart beyond its first character.
        blanks = _least_blanks(root)
        self._options = (
            BOUNDED if blanks is None else {"whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{blanks}}}"}
        )

    def grammar(self, form: Any) -> str:
        whole = self._rule(self._part(form))
        return lark_grammar("\n".join([f"start: {whole}", *self._lines]), self._others)

    def _part(self, form: Any) -> _Fragment:
        kind = form["type"]
        if kind not in _KEYS:
            raise ConfigError(
                f"structured_outputs 'structural_tag': {kind!r} is not supported: use one of {', '.join(_KEYS)}"
            )
        unknown = [key for key in form if key not in ("type", *_KEYS[kind])]
        if unknown:
            raise ConfigError(
                f"structured_outputs 'structural_tag': {unknown[0]!r} is not supported in {kind!r}: leave it out"
            )
        if kind in _TIMES:
            inner = self._part(form["content"])
            return _Fragment(f"({inner.text}){_TIMES[kind]}", inner.is_regular)
        made: _Fragment = getattr(self, f"_{kind}")(form)
        return made

    def _const_string(self, form: Any) -> _Fragment:
        return _text(form["value"])

    def _regex(self, form: Any) -> _Fragment:
        from llguidance import regex_to_lark

        return _without(f"/{regex_to_lark(portable(form['pattern']), '')}/", form.get("excludes", ()))

    def _any_text(self, form: Any) -> _Fragment:
        return _without(_ANY, form.get("excludes", ()))

    def _json_schema(self, form: Any) -> _Fragment:
        return self._json(form["json_schema"])

    def _json(self, schema: Any) -> _Fragment:
        return _Fragment(
            self._named(f"%json {json.dumps(guided(schema, **self._options))}"), is_regular=False
        )

    def _grammar(self, form: Any) -> _Fragment:
        name = f"grammar{len(self._others)}"
        self._others.append({"name": name, "lark_grammar": self._lark_of(form["grammar"])})
        return _Fragment(f"@{name}", is_regular=False)

    def _sequence(self, form: Any) -> _Fragment:
        return self._joined([self._part(element) for element in form["elements"]])

    def _or(self, form: Any) -> _Fragment:
        return self._one_of([self._part(element) for element in form["elements"]])

    def _tag(self, form: Any) -> _Fragment:
        content = form["content"]
        if content["type"] == "json_schema":
            around = _around(form["begin"], content["json_schema"], form["end"])
            if around is not None:
                return self._json({**around, "x-guidance": _options(content["json_schema"])})
        return self._joined([_text(form["begin"]), self._part(content), _text(form["end"])])

    def _triggered_tags(self, form: Any) -> _Fragment:
        triggers = form["triggers"]
        wrong = [tag for tag in form["tags"] if not tag["begin"].startswith(tuple(triggers))]
        if wrong or not triggers:
            raise ConfigError(
                "structured_outputs 'structural_tag': each tag of 'triggered_tags' must begin with a trigger"
            )
        free = _without(_ANY, triggers)
        tag = self._one_of([self._joined([free, self._part(tag)]) for tag in form["tags"]])
        times = {(False, False): "*", (False, True): "?", (True, False): "+", (True, True): ""}[
            form.get("at_least_one", False), form.get("stop_after_first", False)
        ]
        if form.get("stop_after_first"):
            return tag if not times else self._one_of([tag, free])
        return self._joined([_Fragment(f"({self._rule(tag)}){times}", is_regular=False), free])

    def _tags_with_separator(self, form: Any) -> _Fragment:
        tag = self._one_of([self._part(tag) for tag in form["tags"]])
        made = tag
        if not form.get("stop_after_first"):
            more = self._joined([_text(form["separator"]), tag])
            made = self._joined([tag, _Fragment(f"({more.text})*", more.is_regular)])
        return made if form.get("at_least_one") else _Fragment(f"({made.text})?", made.is_regular)

    def _joined(self, parts: Sequence[_Fragment]) -> _Fragment:
        pieces = tuple(piece for part in parts for piece in part.pieces or (part,) if piece != _text(""))
        if all(piece.is_regular for piece in pieces):
            text = " ".join(piece.text for piece in pieces) or '""'
            return _Fragment(f"({text})", is_regular=True)
        texts: list[str] = []
        for is_regular, group in groupby(pieces, lambda piece: piece.is_regular):
            inner = [piece.text for piece in group]
            texts += [self._named(" ".join(inner), is_terminal=True)] if is_regular else inner
        return _Fragment(f"({' '.join(texts)})", False, pieces)

    def _one_of(self, parts: Sequence[_Fragment]) -> _Fragment:
        if not parts:
            raise ConfigError("structured_outputs 'structural_tag': a choice of nothing allows no text")
        is_regular = all(part.is_regular for part in parts)
        texts = [part.text if is_regular else self._rule(part) for part in parts]
        return _Fragment(f"({' | '.join(texts)})", is_regular)

    def _rule(self, part: _Fragment) -> str:
        return self._named(part.text, is_terminal=True) if part.is_regular else part.text

    def _named(self, text: str, *, is_terminal: bool = False) -> str:
        name = f"{'T' if is_terminal else 'r'}{len(self._lines)}"
        self._lines.append(f"{name}: {text}")
        return name


def _text(text: str) -> _Fragment:
    return _Fragment(json.dumps(text, ensure_ascii=False), is_regular=True)


def _without(text: str, excluded: Sequence[str]) -> _Fragment:
    """Return a regular part without texts that have one of these."""
    parts = "".join(f" & ~({_ANY} {_text(one).text} {_ANY})" for one in excluded)
    return _Fragment(f"({text}{f' & {_ANY}' if parts else ''}{parts})", is_regular=True)


def _around(begin: str, schema: Any, end: str) -> dict[str, Any] | None:
    """Return the schema of JSON that begins and ends with these texts; None if they are not JSON around a value."""
    try:
        shape = json.loads(f'{begin}"{_HOLE}"{end}')
    except ValueError:
        return None
    return _shaped(shape, schema) if isinstance(shape, dict | list) else None


def _options(schema: Any) -> Any:
    """Return the options of llguidance in a schema; they count at its root only."""
    inner = json.loads(schema) if isinstance(schema, str) else schema
    return inner.get("x-guidance", {}) if isinstance(inner, dict) else {}


def _shaped(shape: Any, schema: Any) -> Any:
    if shape == _HOLE:
        inner = json.loads(schema) if isinstance(schema, str) else schema
        return {"$id": f"tag:{abs(hash(json.dumps(inner)))}", **inner} if isinstance(inner, dict) else inner
    if isinstance(shape, dict):
        inside = {name: _shaped(value, schema) for name, value in shape.items()}
        return {
            "type": "object",
            "properties": inside,
            "required": [*inside],
            "additionalProperties": False,
        }
    if isinstance(shape, list):
        items = [_shaped(value, schema) for value in shape]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    return {"const": shape}


def _least_blanks(value: Any) -> int | None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [count for one in inner if (count := _least_blanks(one)) is not None]
    if isinstance(value, dict) and isinstance(value.get("max_whitespace_cnt"), int):
        found.append(value["max_whitespace_cnt"])
    return min(found, default=None)
