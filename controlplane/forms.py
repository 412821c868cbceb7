"""The versioned JSON forms of the domain's values.

One form each: `{"form": "plan/1", ...fields}`. The text is canonical (sorted keys, no spaces,
no NaN or Infinity tokens, floats always as floats), so equal values have equal text, and its
hash names the value. Reading is strict: an unknown field, a wrong type or another version is a
ValueError that names the path.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from cattrs import BaseValidationError, Converter, transform_error
from cattrs.strategies import configure_tagged_union

from controlplane.domain.explanation import Explanation
from controlplane.domain.fleet import Inventory
from controlplane.domain.forecast import Forecast
from controlplane.domain.gateway import GatewayView
from controlplane.domain.observation import Observation
from controlplane.domain.plan import Decision, Plan
from controlplane.domain.policy import Policies
from controlplane.domain.profile import Profile
from controlplane.domain.readings import CAUSES, Column, Known, Missing
from controlplane.domain.state import State

T = TypeVar("T")

FORMS: Mapping[type, str] = {
    Observation: "observation/3",
    State: "state/3",
    Policies: "policies/2",
    Profile: "profile/1",
    Forecast: "forecast/1",
    Plan: "plan/2",
    Decision: "decision/2",
    Explanation: "explanation/1",
    Inventory: "inventory/3",
    GatewayView: "gateway_view/1",
}
"""Each value's form and version. A change of fields is a new version."""

OLDER: Mapping[type, frozenset[str]] = {
    Observation: frozenset({"observation/1", "observation/2"}),
    State: frozenset({"state/1", "state/2"}),
    Policies: frozenset({"policies/1"}),
    Plan: frozenset({"plan/1"}),
    Decision: frozenset({"decision/1"}),
    Inventory: frozenset({"inventory/1", "inventory/2"}),
}
"""Earlier versions that are still read: their fields mean the same, and the new ones have defaults."""

_NEW: Mapping[str, tuple[object, ...]] = {"place": (None,), "loans": ([], ())}
"""Fields of a plan that the version before did not have, with what they hold where nothing is new."""

_COLUMN_FIELDS = frozenset({"value", "cause", "sampled_at"})


def to_json(value: object) -> str:
    """The canonical text. Raises ValueError for a value without a form, or with NaN or infinity in it."""
    body = _CONVERTER.unstructure(value)
    return json.dumps(
        {"form": _form(type(value)), **body}, sort_keys=True, separators=(",", ":"), allow_nan=False
    )


def from_json(cls: type[T], text: str) -> T:
    """Read what `to_json` wrote. Raises ValueError, naming the path, on anything else."""
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError(f"{_form(cls)}: nested too deeply") from error
    if not isinstance(body, dict):
        _refuse(f"an object of form {_form(cls)!r}", body)
    found = body.pop("form", None)
    if found != _form(cls) and found not in OLDER.get(cls, ()):
        raise ValueError(f"$.form: expected {_form(cls)!r}, got {found!r}")
    try:
        return _CONVERTER.structure(body, cls)
    except BaseValidationError as error:
        raise ValueError("; ".join(transform_error(error, path="$", format_exception=_words))) from error


def content_hash(value: object) -> str:
    """The sha256 (hex) of the canonical text."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()


def older_hash(value: object) -> str:
    """The sha256 that a value without anything new had under the version before."""
    form = next(iter(OLDER[type(value)]))
    body = _without_new(_CONVERTER.unstructure(value))
    text = json.dumps({"form": form, **body}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_new(body: Any) -> Any:
    if isinstance(body, dict):
        kept = {key: each for key, each in body.items() if key not in _NEW or each not in _NEW[key]}
        return {key: _without_new(each) for key, each in kept.items()}
    return [_without_new(each) for each in body] if isinstance(body, list) else body


def _form(cls: type) -> str:
    if cls not in FORMS:
        raise ValueError(f"{cls.__name__} has no JSON form; those that have: {', '.join(FORMS.values())}")
    return FORMS[cls]


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is no JSON number; a missing figure is null")


def _refuse(expected: str, value: object) -> NoReturn:
    raise ValueError(f"expected {expected}, got {value!r:.80}")


def _words(error: BaseException, _type: type | None) -> str:
    return f"missing field {error}" if isinstance(error, KeyError) else str(error)


def _float_out(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON form; a figure that is unknown is None or Missing")
    return float(value) + 0.0  # -0.0 and 0.0 are equal values and must have equal text


def _float_in(value: object, _type: type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse("a finite number", value)
    return float(value)


def _int_in(value: object, _type: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse("a whole number", value)
    return value


def _flag_in(value: object, _type: type) -> bool:
    if not isinstance(value, bool):
        _refuse("true or false", value)
    return value


def _text_in(value: object, _type: type) -> str:
    if not isinstance(value, str):
        _refuse("text", value)
    return value


def _column_out(column: Column) -> dict[str, list[Any]]:
    """Lists with null for missing; `cause` by its code in `CAUSES`."""
    return {
        "value": _nullable(column.value, column.ok),
        "cause": column.cause.tolist(),
        "sampled_at": _nullable(column.sampled_at, column.ok),
    }


def _nullable(values: np.ndarray[Any, Any], ok: np.ndarray[Any, Any]) -> list[float | None]:
    return [
        _float_out(value) if known else None
        for value, known in zip(values.tolist(), ok.tolist(), strict=True)
    ]


def _column_in(body: object, _type: type) -> Column:
    if not isinstance(body, dict) or set(body) != _COLUMN_FIELDS:
        raise ValueError(f"expected a column with exactly {sorted(_COLUMN_FIELDS)}")
    value, cause, sampled_at = body["value"], body["cause"], body["sampled_at"]
    if not all(isinstance(part, list) for part in body.values()) or not len(value) == len(cause) == len(
        sampled_at
    ):
        raise ValueError("a column's lists must be lists of one length")
    for position, row in enumerate(zip(value, cause, sampled_at, strict=True)):
        _check_row(position, *row)
    return Column(
        value=np.array([np.nan if v is None else v for v in value], dtype=np.float64),
        ok=np.array([v is not None for v in value], dtype=np.bool_),
        cause=np.array(cause, dtype=np.uint8),
        sampled_at=np.array([np.nan if v is None else v for v in sampled_at], dtype=np.float64),
    )


def _check_row(position: int, value: object, cause: object, sampled_at: object) -> None:
    if (value is None) != (sampled_at is None):
        raise ValueError(f"row {position}: value and sampled_at must both be known or both be null")
    for figure in (value, sampled_at):
        if figure is not None:
            _float_in(figure, float)
    if isinstance(cause, bool) or not isinstance(cause, int) or not 0 <= cause < len(CAUSES):
        raise ValueError(f"row {position}: cause must be 0..{len(CAUSES) - 1}, got {cause!r}")


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook(float, _float_out)
    converter.register_structure_hook(float, _float_in)
    converter.register_structure_hook(int, _int_in)
    converter.register_structure_hook(bool, _flag_in)
    converter.register_structure_hook_func(lambda cls: cls is str, _text_in)
    converter.register_unstructure_hook(Column, _column_out)
    converter.register_structure_hook(Column, _column_in)
    for union in (Known | Missing, GatewayView | Missing, Inventory | Missing):
        _register_union(converter, cast("Any", union))
    return converter


def _register_union(converter: Converter, union: type) -> None:
    """`{"is": "known", ...}` or `{"is": "missing", ...}`."""
    configure_tagged_union(union, converter, tag_name="is", tag_generator=_tag)
    by_tag = converter.get_structure_hook(union)

    def structure(body: object, cls: type) -> Any:
        if not isinstance(body, dict) or body.get("is") not in {"known", "missing"}:
            _refuse("an object that is known or missing", body)
        return by_tag(body, cls)

    converter.register_structure_hook_func(lambda cls: cls == union, structure)


def _tag(cls: type) -> str:
    return "missing" if cls is Missing else "known"


_CONVERTER = _converter()
