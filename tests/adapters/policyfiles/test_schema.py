"""The published JSON Schema says the same as the reader of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from controlplane.adapters.policyfiles import document
from controlplane.adapters.policyfiles.bufferfile import BufferFile, is_buffer
from controlplane.adapters.policyfiles.policyfile import PolicyFile
from controlplane.adapters.policyfiles.schema import policy_schema
from controlplane.adapters.policyfiles.shape import shaped
from tests.adapters.policyfiles.files import POLICY, changed

POLICIES = Path(__file__).resolve().parents[3] / "policies"
SHIPPED = sorted(POLICIES.glob("*.yaml"))


def valid(value: object) -> bool:
    return bool(jsonschema.Draft202012Validator(json.loads(policy_schema())).is_valid(value))


def test_the_committed_schema_is_the_generated_one() -> None:
    """After a change of the model: `make render`."""
    assert (POLICIES / "schema.json").read_text("utf-8") == policy_schema()


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(policy_schema()))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_policies_satisfy_schema_and_reader(path: Path) -> None:
    read = document.read(path)
    model: type[BufferFile | PolicyFile] = BufferFile if is_buffer(read) else PolicyFile
    assert shaped(read, model).pool == path.stem
    assert valid(read.value)


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"capacity.min": "2"},
        {"slo.ttft_p95": 2},
        {"pool": "A"},
        {"kind": "x"},
        {"capacity.min": -1},
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(change: dict[str, object]) -> None:
    assert valid(POLICY)
    assert not valid(changed(POLICY, change))


def test_a_buffer_has_the_buffers_keys_and_a_pool_its_own() -> None:
    buffer = {"pool": "buffer", "kind": "buffer", "reserve": 8}
    assert valid(buffer)
    assert not valid({**buffer, "tp": 1})
    assert not valid({**POLICY, "reserve": 8})


def test_defaults_in_the_schema_could_be_written_in_a_file() -> None:
    schema: dict[str, Any] = json.loads(policy_schema())
    for section in schema["$defs"].values():
        for field in section["properties"].values():
            if "default" in field:
                jsonschema.validate(field["default"], field)
