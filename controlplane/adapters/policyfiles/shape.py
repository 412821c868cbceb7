"""From a document to a validated model of it, with every problem in one sentence each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from controlplane.adapters.policyfiles.document import Document, Loc
from controlplane.ports import InvalidConfig


class Closed(BaseModel):
    """Base of every section of a file: a key that is not listed is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


M = TypeVar("M", bound=BaseModel)


def shaped(document: Document, model: type[M]) -> M:
    """The document as `model`. Raises InvalidConfig with all problems, each with its line."""
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        problems = [_sentence(document, model, one) for one in error.errors(include_url=False)]
        raise InvalidConfig(problems) from None


def defaults(domain: type) -> dict[str, Any]:
    """The defaults of a domain value, by field: they are stated there, and only there."""
    return {each.name: each.default for each in fields(domain) if each.default is not MISSING}


def _sentence(document: Document, model: type[BaseModel], error: ErrorDetails) -> str:
    loc: Loc = error["loc"]
    if error["type"] == "extra_forbidden":
        return document.problem(loc, _unknown(str(loc[-1]), _keys(model, loc[:-1])))
    if error["type"] == "missing":
        return document.problem(loc, "is required and missing")
    if error["type"] == "value_error":
        return document.problem(loc, str(error["ctx"]["error"]))
    wanted = "a list" if "list" in error["type"] or "tuple" in error["type"] else "keys with values"
    return document.problem(loc, f"allowed: {wanted}")


def _unknown(key: str, known: Iterable[str]) -> str:
    """The value is never shown: somebody may have put a secret under a key of their own."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown key{hint}, allowed: {', '.join(names)}"


def _keys(model: type[BaseModel], loc: Loc) -> Iterable[str]:
    """The keys that the section at `loc` knows, read from the model's own JSON Schema."""
    schema: dict[str, Any] = model.model_json_schema()
    part = schema
    for step in loc:
        inner = part.get("items", {}) if isinstance(step, int) else part.get("properties", {}).get(step, {})
        part = schema["$defs"][inner["$ref"].rsplit("/", 1)[-1]] if "$ref" in inner else inner
    keys: Iterable[str] = part.get("properties", {})
    return keys
