"""Which files are read, by which name, and what can't be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from modelplane_dagster.errors import ConfigError
from modelplane_dagster.findings import Place
from resources import files as module
from resources.files import load_fleet, read_paths
from tests.manifests.texts import CLASS, CLUSTER

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str = "a: 1\n") -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def read(*paths: str):
    found, findings = read_paths([Path(p) for p in paths])
    return [name for name, _ in found], [(f.code, f.subject) for f in findings]


def test_a_folder_s_manifests_are_read_sorted_and_named_as_given(here):
    for name in ("b.yaml", "a.yml", "sub/c.json", "sub/readme.md", ".git/x.yaml", ".hidden.yaml", "r/recipe.yaml"):
        write(f"fleet/{name}")
    assert read("fleet") == (["fleet/a.yml", "fleet/b.yaml", "fleet/sub/c.json"], [])
    absolute = str(here / "fleet")
    assert read(absolute)[0] == [f"{absolute}/a.yml", f"{absolute}/b.yaml", f"{absolute}/sub/c.json"]


def test_a_file_that_is_named_is_read_whatever_its_name(here):
    write("manifest.txt")
    assert read("manifest.txt") == (["manifest.txt"], [])


def test_a_file_is_read_once_however_many_paths_lead_to_it(here):
    write("fleet/a.yaml")
    Path("fleet/b.yaml").symlink_to("a.yaml")
    Path("fleet/again").symlink_to(".")
    assert read("fleet", "fleet/a.yaml") == (["fleet/a.yaml"], [("LoopingLink", "file/fleet/again")])


def test_links_that_lead_elsewhere_are_followed(here):
    write("elsewhere/a.yaml")
    Path("fleet").mkdir()
    Path("fleet/link").symlink_to("../elsewhere")
    assert read("fleet") == (["fleet/link/a.yaml"], [])


def test_broken_and_looping_links_are_reported_and_skipped(here):
    write("fleet/a.yaml")
    Path("fleet/gone.yaml").symlink_to("nowhere.yaml")
    Path("fleet/loop.yaml").symlink_to("loop.yaml")
    Path("fleet/sub").mkdir()
    Path("fleet/sub/up").symlink_to("..")
    names, found = read("fleet")
    assert names == ["fleet/a.yaml"]
    assert found == [
        ("BrokenLink", "file/fleet/gone.yaml"),
        ("LoopingLink", "file/fleet/loop.yaml"),
        ("LoopingLink", "file/fleet/sub/up"),
    ]


def test_what_permission_forbids_is_reported_and_the_rest_is_read(here, monkeypatch):
    for name in ("a.yaml", "b.yaml", "closed/c.yaml"):
        write(f"fleet/{name}")
    # Tests may run as root, whom no mode stops: the calls refuse instead.
    real_bytes, real_list = Path.read_bytes, os.listdir

    def read_bytes(path):
        if path.name == "a.yaml":
            raise PermissionError(13, "Permission denied")
        return real_bytes(path)

    def listdir(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return real_list(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(module.os, "listdir", listdir)
    found, findings = read_paths([Path("fleet")])
    assert [name for name, _ in found] == ["fleet/b.yaml"]
    assert [(f.code, f.message, f.place) for f in findings] == [
        ("FileUnreadable", "fleet/a.yaml can't be read: permission denied", Place("fleet/a.yaml", 1, 1)),
        ("FileUnreadable", "fleet/closed can't be read: permission denied", Place("fleet/closed", 1, 1)),
    ]


def test_a_pipe_is_not_waited_for(here):
    Path("fleet").mkdir()
    os.mkfifo("fleet/pipe.yaml")
    assert read("fleet") == ([], [("FileUnreadable", "file/fleet/pipe.yaml")])


def test_a_file_beyond_all_bounds_is_not_read(here, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE", 4)
    write("fleet/a.yaml", "a: 1\n")
    write("fleet/b.yaml", "b: 1")
    assert read("fleet") == (["fleet/b.yaml"], [("ManifestTooLarge", "file/fleet/a.yaml")])


def test_folders_nested_beyond_bounds_are_reported(here, monkeypatch):
    monkeypatch.setattr(module, "MAX_FOLDERS", 2)
    write("fleet/one/two/a.yaml")
    write("fleet/one/b.yaml")
    assert read("fleet") == (["fleet/one/b.yaml"], [("FileUnreadable", "file/fleet/one/two")])


def test_a_folder_without_manifests_is_a_finding(here):
    Path("empty").mkdir()
    assert read("empty") == ([], [("NothingFound", "file/empty")])


@pytest.mark.parametrize("path", ["missing", "missing/a.yaml", "fleet/a.yaml/b.yaml", "gone"])
def test_a_path_that_does_not_exist_is_the_caller_s_mistake(here, path):
    write("fleet/a.yaml")
    Path("gone").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=f"^{path} doesn't exist"):
        read_paths([Path(path)])


def test_a_fleet_is_loaded_from_paths_with_what_could_not_be_read(here):
    write("fleet/class.yaml", CLASS)
    write("fleet/cluster.yaml", CLUSTER)
    Path("fleet/gone.yaml").symlink_to("nowhere.yaml")
    fleet = load_fleet([Path("fleet")])
    assert list(fleet.classes) == ["l4"]
    assert list(fleet.clusters) == ["west"]
    assert [f.code for f in fleet.findings] == ["BrokenLink"]
    assert fleet.place("InferenceCluster", "west") == Place("fleet/cluster.yaml", 1, 1)


CHILD = """
import json, os, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from resources.files import read_paths
os.setgroups([]); os.setgid(65534); os.setuid(65534)
found, findings = read_paths([Path("fleet")])
print(json.dumps([[n for n, _ in found], [[f.code, f.message] for f in findings]]))
"""


def test_what_the_user_has_no_permission_to_read_is_told_and_skipped(here):
    """As nobody where this process is root, which may read everything; else as this very user."""
    for name in ("good.yaml", "shut/inside.yaml", "shut.yaml"):
        write(f"fleet/{name}")
    for path in (here / "fleet/shut", here / "fleet/shut.yaml"):
        path.chmod(0)
    try:
        told = _as_nobody(here) if os.geteuid() == 0 else _told(*read_paths([Path("fleet")]))
    finally:
        (here / "fleet/shut").chmod(0o700)
    assert told == [
        ["fleet/good.yaml"],
        [
            ["FileUnreadable", "fleet/shut can't be read: permission denied"],
            ["FileUnreadable", "fleet/shut.yaml can't be read: permission denied"],
        ],
    ]


def _told(found, findings):
    return [[name for name, _ in found], [[f.code, f.message] for f in findings]]


def _as_nobody(here: Path):
    """What a child reads once it has dropped to user nobody. It stands in the folder already, so it needs no way to it."""
    here.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([str(ROOT), *sys.path])],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("this process may not become another user, so nothing here is out of its reach")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
