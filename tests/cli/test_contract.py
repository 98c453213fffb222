"""Commands, JSON and exit statuses, which tools outside rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resources.tools import helm_path
from tests.cli.runner import Ran
from tests.made import AMD, cls, cluster, cpus, deployment, device, engine, member, nvidia, pool, request

Cli = Callable[..., Ran]
Written = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]
GOOD = (cls("l4", nvidia(), source="EKS"), cluster("c", "EKS", pool("p", "l4")))
REFUSED = (cls("mi", device(AMD), source="EKS"), cluster("c", "EKS", pool("p", "mi")))
INVALID = (cluster("c", "EKS", pool("p", "missing")),)
TYPO = deployment("m", engine(member(request('device.attributes["gpu.nvidia.com"].typo == "x"'))))


@pytest.mark.parametrize(
    ("objects", "validate", "plan"),
    [
        (GOOD, 0, 0),
        (REFUSED, 0, 3),
        (INVALID, 1, 1),
        ((*GOOD, TYPO), 0, 3),
        ((*REFUSED, cluster("d", "EKS", pool("p", "missing"))), 1, 1),
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_statuses(cli: Cli, written: Written, objects: Any, validate: int, plan: int, form: str) -> None:
    folder = written(*objects)
    ran = cli("validate", folder, "--format", form), cli("plan", folder, "--format", form)
    assert ([r.status for r in ran], [r.err for r in ran]) == ([validate, plan], ["", ""])


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate",),
        ("validate", "/nowhere/at/all"),
        ("plan", "/nowhere/at/all"),
        ("plan", "x" * 5000),
        ("plan", "--format", "yaml"),
        ("plan", "--no-such-option"),
        ("no-such-command",),
        ("explain", "nobody"),
        ("explain",),
        ("telemetry", "nobody"),
        ("reconcile", "--timeout", "soon"),
        ("reconcile", "/nowhere/at/all"),
        ("status", "/nowhere/at/all"),
        ("drivers", "extra"),
        ("prune", "everything", "--fleet", "/nowhere/at/all"),
        ("lab", "kubeconfig"),
    ],
)
def test_unusable_arguments_are_2_and_say_so_on_stderr(cli: Cli, arguments: tuple[str, ...]) -> None:
    ran = cli(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODELPLANE_TARGET", "moon"),
        ("MODELPLANE_GRACE", "soon"),
        ("MODELPLANE_COMPONENTS", "/nowhere/at/all.yaml"),
        ("MODELPLANE_FLEET", "/nowhere/at/all"),
        ("MODELPLANE_LAB", "kind"),
        ("MODELPLANE_LAB", "Embedded"),
    ],
)
def test_unusable_settings_are_2(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    ran = cli("plan")
    assert (ran.status, ran.out) == (2, "")
    assert name.removeprefix("MODELPLANE_").lower()[:5] in ran.err.lower() or value in ran.err


@pytest.mark.parametrize(
    "content", ["- a\n", "a: 1\n", "a: [\n", "1: {}\n", "cert-manager: {version: 7}\n", "no-such: {}\n"]
)
def test_an_overlay_that_isnt_one_is_2(
    cli: Cli, written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    folder = written(*GOOD)
    (tmp_path / "overlay.yaml").write_text(content)
    monkeypatch.setenv("MODELPLANE_COMPONENTS", str(tmp_path / "overlay.yaml"))
    assert [cli(*a).status for a in (("plan", folder), ("drivers",))] == [2, 2]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "a: [\n",
            "which can't be read as YAML: line 2, column 1: expected the node content, but found '<stream end>'.",
        ),
        ("- a\n", "which isn't an overlay: overlay: The overlay is no mapping of component keys."),
        (
            "cert-manager: {version: 7, verzion: x}\nno-such: {}\ngaie-crds: {version: v1}\n",
            (
                "which isn't an overlay: cert-manager: An overlay has no field verzion; the nearest is version; cert-manager: "
                "version takes a string; gaie-crds: gaie-crds is no chart, so it has no version; no-such: There is no "
                "component no-such."
            ),
        ),
    ],
)
def test_a_broken_overlay_is_named_with_all_that_is_wrong(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, told: str
) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text(content)
    monkeypatch.setenv("MODELPLANE_COMPONENTS", str(path))
    ran = cli("drivers")
    assert (ran.status, ran.err) == (2, f"modelplane-dagster: MODELPLANE_COMPONENTS names {path}, {told}\n")


def test_an_empty_fingerprint_is_no_fingerprint(cli: Cli, written: Written) -> None:
    ran = cli("prune", "cluster/c", "--fingerprint", "", "--fleet", written(*GOOD))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "modelplane-dagster: --fingerprint is empty: give what prune prints without it, or leave it out.\n"
    )


def test_a_missing_helm_is_told_at_once(
    cli: Cli, written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    helm_path.cache_clear()
    start = time.monotonic()
    try:
        ran = cli("reconcile", written(*GOOD), "--timeout", "60s")
    finally:
        helm_path.cache_clear()
    assert (ran.status, ran.out, time.monotonic() - start < 20) == (2, "", True)
    assert ran.err == (
        f"modelplane-dagster: helm 4 is neither on the PATH nor in {tmp_path}/cache/modelplane-dagster/tools: run `make "
        "setup` (or `python -m resources.tools`), or put it on the PATH.\n"
    )
    assert not (tmp_path / "home").exists(), "nothing was started"


def test_invalid_objects_are_counted(cli: Cli, written: Written) -> None:
    bad = ({**cls("a", nvidia(), source="EKS"), "spec": {}}, {**cluster("d", "EKS", pool("p", "l4")), "spec": {}})
    last = cli("validate", written(*GOOD, *bad, TYPO)).out.splitlines()[-1]
    assert last.partition(";")[0] == "2 clusters (1 invalid), 2 classes (1 invalid), 1 deployments"


def test_a_files_subject_has_one_slash(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("a: [\n")
    (found,) = cli("validate", path, "--format", "json").document["findings"]
    assert (found["subject"], found["file"]) == (f"file{path}", str(path))


def test_an_empty_folder_is_an_error_of_the_fleet(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = cli("validate", tmp_path / "empty", "--format", "json")
    assert (ran.status, [f["code"] for f in ran.document["findings"]]) == (1, ["NothingFound"])


def test_validate(cli: Cli, written: Written) -> None:
    folder = written(*INVALID)
    assert cli("validate", folder, "--format", "json").document == {
        "findings": [
            {
                "code": "ClassNotFound",
                "severity": "error",
                "subject": "pool/c/p",
                "message": "spec.nodePools[0].className: no manifest holds the class 'missing'",
                "fix": "Add the class, or correct className.",
                "file": str(folder / "fleet.yaml"),
                "line": 2,
                "column": 210,
            }
        ]
    }


def test_drivers(cli: Cli) -> None:
    document = cli("drivers", "--format", "json").document
    own = {"dra.cpu": {"via": ["dra-driver-cpu"]}, "gpu.nvidia.com": {"via": ["nvidia-dra-driver-gpu"]}}
    external = {"dra.net": {"external": "where a pool has fabric: EFA"}}
    amd = {"gpu.amd.com": {"via": ["amd-gpu-operator"]}}
    assert document == {
        "EKS": {**own, **external},
        **{source: own for source in ("GKE", "AKS", "Nebius", "Vultr", "Civo")},
        "Existing": {**own, **amd},
    }


def test_drivers_follow_the_sites_overlay(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "overlay.yaml").write_text("nodewright-operator: {publishes: gpu.amd.com, drivers: [gpu.amd.com]}\n")
    monkeypatch.setenv("MODELPLANE_COMPONENTS", str(tmp_path / "overlay.yaml"))
    document = cli("drivers", "--format", "json").document
    assert {s: row.get("gpu.amd.com") for s, row in document.items()} == {
        **{s: {"via": ["nodewright-operator"]} for s in ("EKS", "GKE", "AKS")},
        **dict.fromkeys(("Nebius", "Vultr", "Civo")),
        "Existing": {"via": ["amd-gpu-operator"]},
    }


def test_explain(cli: Cli, written: Written) -> None:
    both = (cls("k", nvidia(), cpus(), source="Vultr"), cluster("c", "Vultr", pool("p", "k"), pool("q", "k")))
    folder = written(*both)
    whole = cli("explain", "c", "--fleet", folder, "--format", "json").document
    one = cli("explain", "c/q", "--fleet", folder, "--format", "json").document
    served = [
        {"component": "dra-driver-critical-pods-quota", "reason": "serves gpu.nvidia.com of pools p and q"},
        {"component": "nvidia-dra-driver-gpu", "reason": "serves gpu.nvidia.com of pools p and q"},
        {"component": "dra-driver-cpu", "reason": "serves dra.cpu of pools p and q"},
    ]
    pools = [
        {
            "name": name,
            "role": "GPU",
            "drivers": {
                "dra.cpu": "class k claims its device cpus",
                "gpu.nvidia.com": "class k claims its device gpu",
            },
            "servedBy": served,
        }
        for name in ("p", "q")
    ]
    expected = {"cluster": "c", "source": "Vultr", "verdict": "pass", "leftOut": [], "findings": []}
    assert {**whole, "leftOut": []} == {**expected, "pools": pools}
    assert {**one, "leftOut": []} == {**expected, "pools": pools[1:]}


@pytest.mark.parametrize("subject", ["c/nobody", "nobody", "c/"])
def test_explain_of_nothing_there(cli: Cli, written: Written, subject: str) -> None:
    folder = written(*GOOD)
    ran = cli("explain", subject, "--fleet", folder)
    assert ran.status == (0 if subject == "c/" else 2)


@pytest.mark.parametrize("objects", [GOOD, REFUSED, INVALID, (*GOOD, TYPO)])
def test_a_refusals_sentence_and_fix_stand_in_the_text(cli: Cli, written: Written, objects: Any) -> None:
    folder = written(*objects)
    document, printed = cli("plan", folder, "--format", "json").document, cli("plan", folder).out
    flat = " ".join(printed.split())
    findings = [f for c in document["clusters"] for f in c["gate"]["findings"]]
    findings += [f for d in document["deployments"] for f in d["findings"]]
    for found in findings:
        assert flat.count(" ".join(found["message"].split())) == 1
        assert " ".join(f"fix: {found['fix']}".split()) in flat


def test_markup_in_manifests_is_printed_as_it_is(cli: Cli, written: Written) -> None:
    marked = deployment("m", engine(member(request("true"), image="example.com/[bold]x[/nothing]")))
    ran = cli("plan", written(*GOOD, marked))
    assert (ran.status, "example.com/[bold]x[/nothing]" in ran.out) == (0, True)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_reader_that_goes_away_is_no_fault(form: str, tmp_path: Path) -> None:
    env = {**os.environ, "MODELPLANE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "modelplane_dagster", "plan", "fleet", "recipes", "--format", form]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_plan_needs_neither_dagster_nor_a_cloud(tmp_path: Path) -> None:
    env = {**os.environ, "MODELPLANE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    code = (
        "import sys; from modelplane_dagster.cli.main import run; run(['plan', 'fleet']); "
        "heavy = ('dagster', 'kubernetes', 'boto3', 'azure', 'google.cloud', 'nebius'); "
        "sys.stderr.write(' '.join(m for m in heavy if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_state_folder_isnt_touched(cli: Cli, written: Written, tmp_path: Path) -> None:
    folder = written(*GOOD)
    for arguments in (("validate", folder), ("plan", folder), ("drivers",), ("explain", "c", "--fleet", folder)):
        cli(*arguments)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifests"]
