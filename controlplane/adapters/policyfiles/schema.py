"""The policy files' JSON Schema, for editors: generated from the models that read the files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from controlplane.adapters.policyfiles.bufferfile import KIND, BufferFile
from controlplane.adapters.policyfiles.policyfile import PolicyFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_CHOICE: Mapping[str, Any] = {
    "if": {"required": ["kind"], "properties": {"kind": {"const": KIND}}},
    "then": {"$ref": "#/$defs/BufferFile"},
    "else": {"$ref": "#/$defs/PolicyFile"},
}
"""By its kind a file is the buffer's or a pool's: then an error is about the keys of the right one."""


def policy_schema() -> str:
    """The schema as committed in `policies/schema.json`, with a final newline."""
    _, schema = models_json_schema(
        [(PolicyFile, "validation"), (BufferFile, "validation")], ref_template="#/$defs/{model}"
    )
    sections: Mapping[str, dict[str, Any]] = schema["$defs"]
    for section in sections.values():
        for name, field in section["properties"].items():
            section["properties"][name] = _field(field)
    whole = {"$schema": DIALECT, "title": "A pool's policy, or the buffer's", **_CHOICE, "$defs": sections}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """Without what the model's own machinery adds; a span's default as one would write it."""
    kept = {key: value for key, value in field.items() if key != "title"}
    if kept.get("default", "") is None:
        del kept["default"]
    elif kept.get("type") == "string" and isinstance(kept.get("default"), float):
        kept["default"] = _span(kept["default"])
    return kept


def _span(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g}s"
