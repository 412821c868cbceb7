"""What the pages say exists: targets, commands, links, keys, headings."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from controlplane.adapters.policyfiles.policyfile import PolicyFile
from controlplane.adapters.policyfiles.schema import policy_schema
from controlplane.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[a-z]*/README.md")])
ADRS = sorted((ROOT / "docs/decisions").glob("0*.md"))
ADR_HEADINGS = ["Context", "Decision", "Consequences", "Alternatives", "Where it lives"]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code_of(page: Path) -> Iterator[str]:
    """Code blocks line by line, and inline code."""
    text = page.read_text("utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def command_exists(words: list[str]) -> bool:
    """Follows `decisions list` through groups; what is no plain word is an argument."""
    if words[0] not in COMMANDS:
        return False
    command: click.Command = importlib.import_module(COMMANDS[words[0]]).command
    for word in words[1:]:
        if not isinstance(command, click.Group):
            break
        if word not in command.commands:
            return False
        command = command.commands[word]
    return True


@pages
def test_make_targets_exist(page: Path) -> None:
    named = {found for line in code_of(page) for found in re.findall(r"^make ([a-z-]+)", line.strip())}
    assert named - make_targets() == set()


@pages
def test_commands_exist(page: Path) -> None:
    named = [
        m[1].split() for line in code_of(page) if (m := re.match(r"trimtab((?: [a-z]+)+)", line.strip()))
    ]
    assert [words for words in named if not command_exists(words)] == []


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, wanted = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if wanted:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert wanted in map(anchor, headings), link


@pytest.mark.parametrize("adr", ADRS, ids=lambda adr: adr.stem)
def test_decisions_have_their_headings_and_fit_a_screen(adr: Path) -> None:
    text = adr.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ADR_HEADINGS
    assert re.match(rf"# {adr.stem[:4]}: \S", text)
    assert re.search(r"^Status: (accepted|superseded by \d{4})$", text, re.MULTILINE)
    assert len(text.splitlines()) <= 60


def test_decisions_are_numbered_without_a_gap_and_listed() -> None:
    assert [adr.stem[:4] for adr in ADRS] == [f"{n:04}" for n in range(1, len(ADRS) + 1)]
    listed = (ROOT / "docs/decisions/README.md").read_text("utf-8")
    assert all(f"({adr.name})" in listed for adr in ADRS)


def policy_keys(model: str) -> dict[str, dict[str, Any]]:
    schema = json.loads(policy_schema())
    found: dict[str, dict[str, Any]] = {}
    for name, field in schema["$defs"][model]["properties"].items():
        if "$ref" in field:
            section = schema["$defs"][field["$ref"].rpartition("/")[2]]["properties"]
            found |= {f"{name}.{inner}": value for inner, value in section.items()}
        else:
            found[name] = field
    return found


@pytest.mark.parametrize(("model", "heading"), [("PolicyFile", "Keys"), ("BufferFile", "The buffer")])
def test_every_policy_key_is_described_with_its_default(model: str, heading: str) -> None:
    text = (ROOT / "docs/policies.md").read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    described = dict(
        re.findall(r"^\| `([a-z0-9_.]+)` \| .+ \| `?([^|`]+)`? \|$", section, re.MULTILINE),
    )
    keys = policy_keys(model)
    assert set(described) == set(keys)
    wrong = {
        k: described[k]
        for k, field in keys.items()
        if "default" in field and described[k] != str(field["default"])
    }
    assert wrong == {}


def test_the_policy_in_the_readme_is_valid() -> None:
    example = re.search(
        r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert example
    assert PolicyFile.model_validate(yaml.safe_load(example[1])).value().pool == "chat-8b"


def test_the_two_commands_come_first() -> None:
    block = next(code_of(ROOT / "README.md"))
    assert block == "make demo"
    assert re.search(r"^make demo\nmake test$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)


def test_the_changelog_keeps_its_form() -> None:
    headings = re.findall(r"^(##+) (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert headings[0] == ("##", "[Unreleased]")
    for level, heading in headings:
        assert (
            heading in kinds
            if level == "###"
            else re.match(r"\[Unreleased\]$|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$", heading)
        )


LOSSES = ROOT / "docs/when-x-is-lost.md"


def test_every_claim_about_a_loss_names_tests_that_exist() -> None:
    sections = LOSSES.read_text("utf-8").split("\n## ")[1:]
    assert len(sections) >= 6
    for section in sections:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", section)
        assert named, section.splitlines()[0]
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text("utf-8"), f"{file}::{test}"
