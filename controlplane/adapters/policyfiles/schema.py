"""The policy file's JSON Schema, for editors: generated from the model that reads the files."""

from __future__ import annotations

import json
from typing import Any

from controlplane.adapters.policyfiles.policyfile import PolicyFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def policy_schema() -> str:
    """The schema as committed in `policies/schema.json`, with a final newline."""
    schema = PolicyFile.model_json_schema()
    sections: list[dict[str, Any]] = [schema, *schema["$defs"].values()]
    for section in sections:
        for name, field in section["properties"].items():
            section["properties"][name] = _field(field)
    return json.dumps({"$schema": DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"


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
