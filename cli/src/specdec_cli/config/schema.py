"""The JSON Schema of `speculative_config` for all installed plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specdec import PluginError, registry
from specdec.config import SpeculativeConfig
from specdec.registry import Group

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CLASS_PATH = r"\.py:|^\w+(\.\w+)+$"
"""Pattern of a `method` that is the path of a class."""


def json_schema() -> dict[str, Any]:
    """Return a schema with one alternative per installed method; each includes the keys of all samplers.

    A plugin that cannot be loaded is omitted and named under `$comment`.
    """
    definitions: dict[str, Any] = {}
    broken: list[str] = []
    samplers = _properties_of(Group.SAMPLERS, definitions, broken)
    methods = _properties_of(Group.PROPOSERS, definitions, broken)
    common: dict[str, Any] = {}
    for keys in (*samplers.values(), _properties(SpeculativeConfig, definitions)):
        common |= keys
    common["rejection_sample_method"] |= {"enum": sorted(samplers)}
    alternatives = [
        _alternative(name, own | common | {"method": {"const": name}}) for name, own in methods.items()
    ]
    by_path = {**common, "method": {"type": "string", "pattern": CLASS_PATH}}
    alternatives.append(_alternative("a class of your own", by_path) | {"additionalProperties": True})
    schema = {"$schema": DIALECT, "title": "speculative_config", "oneOf": alternatives, "$defs": definitions}
    return schema | ({"$comment": "; ".join(broken)} if broken else {})


def _properties_of(group: Group, definitions: dict[str, Any], broken: list[str]) -> dict[str, dict[str, Any]]:
    load = registry.proposer if group is Group.PROPOSERS else registry.sampler
    properties = {}
    for info in registry.installed(group):
        try:
            properties[info.name] = _properties(load(info.name).Config, definitions)
        except PluginError as error:
            broken.append(str(error))
    return properties


def _properties(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema()
    definitions.update(schema.get("$defs", {}))
    properties: dict[str, Any] = schema.get("properties", {})
    return properties


def _alternative(title: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": dict(properties),
        "required": ["method"],
        "additionalProperties": False,
    }
