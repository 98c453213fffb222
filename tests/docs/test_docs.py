"""The pages made from tables are current, and what the others tell to type, set and read is there."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from modelplane_dagster.cli.main import COMMANDS
from modelplane_dagster.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(ROOT / "recipes").glob("*/README.md")])
WRITTEN = (
    "credentials.md",
    "drivers.md",
    "existing-clusters.md",
    "findings.md",
    "how-it-works.md",
    "lab.md",
    "operations.md",
    "own-cluster.md",
    "recipes.md",
)
each_page = pytest.mark.parametrize("page", PAGES, ids=[f"{p.parent.name}/{p.name}" for p in PAGES])


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_these() -> None:
    assert tuple(sorted(p.name for p in DOCS.glob("*.md"))) == WRITTEN


@pytest.mark.parametrize("name", ["findings.md", "drivers.md", "recipes.md"])
def test_a_made_page_is_current(name: str) -> None:
    """When it isn't: python docs/generate.py."""
    assert (DOCS / name).read_text(encoding="utf-8") == _generator().PAGES[name]()


def test_the_page_of_findings_tells_every_code_once() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "findings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(told) == sorted(CODES)


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        to = (page.parent / name).resolve() if name else page
        if not to.exists() or (anchor and anchor not in _anchors(to)):
            broken.append(target)
    assert broken == []


def _typed(text: str) -> Iterator[str]:
    yield from re.findall(r"modelplane-dagster ([a-z][a-z-]*)", text)


@each_page
def test_the_commands_told_of_exist(page: Path) -> None:
    assert {c for c in _typed(page.read_text(encoding="utf-8"))} - set(COMMANDS) == set()


@each_page
def test_the_codes_told_of_exist(page: Path) -> None:
    """A word in code quotes that looks like a code is one, or one of the names listed here."""
    others = {
        "InferenceClass", "InferenceCluster", "ClusterProviderConfig", "ModelDeployment", "ServiceMonitor", "PodMonitor",
        "ResourceSlice", "ResourceClaim", "ResourceQuota", "DaemonSet", "DeviceConfig", "DeviceClass", "ProviderConfig",
        "Exists", "Existing", "None", "Synthetic", "Other", "Admission", "Lease", "Secret", "Standard", "NoSchedule", "Nebius",
    }  # fmt: skip
    quoted = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]*)?)`", page.read_text(encoding="utf-8")))
    assert quoted - set(CODES) - others == set()


def test_the_variables_told_of_are_read() -> None:
    told = set(re.findall(r"MODELPLANE_[A-Z]+(?:_[A-Z]+)*", (DOCS / "operations.md").read_text(encoding="utf-8")))
    source = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "resources").rglob("*.py"))
    # One that ends in a cluster's name is read by its beginning.
    assert {name for name in told if f'"{name}"' not in source and f'"{name}_"' not in source} == set()
