"""Server-side apply against the library that kube-apiserver uses, on random writes by several managers.

Needs Go and its module proxy, and a minute the first time: runs where MODELPLANE_ORACLE=1.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.lab.api import ssa
from resources.lab.api.errors import ApiError
from resources.lab.api.fieldset import without
from resources.lab.api.schema import definitions

KIND = "io.k8s.api.apps.v1.DaemonSet"
START = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}
SEQUENCES, STEPS = 150, 12


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if os.environ.get("MODELPLANE_ORACLE") != "1" or go is None:
        pytest.skip("runs where MODELPLANE_ORACLE=1 and Go is there")
    folder = tmp_path_factory.mktemp("oracle")
    shutil.copytree(Path(__file__).parent / "oracle", folder, dirs_exist_ok=True)

    def run(*args: str) -> str:
        done = subprocess.run([go, *args], cwd=folder, capture_output=True, text=True, timeout=600, check=True)
        return done.stdout.strip()

    source = Path(json.loads(run("mod", "download", "-json", "k8s.io/client-go@v0.36.3"))["Dir"])
    generated = (source / "applyconfigurations" / "internal" / "internal.go").read_text()
    (folder / "schema").mkdir()
    (folder / "schema" / "schema.go").write_text(generated.replace("package internal", "package schema", 1))
    run("build", "-o", "oracle", ".")
    process = subprocess.Popen([str(folder / "oracle"), KIND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.stdin.close()
    process.wait(10)


class Writer:
    """Makes configurations and changes; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, letters: str, least: int = 0) -> list[str]:
        return self.random.sample(letters, self.random.randint(least, len(letters)))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def container(self, name: str) -> dict[str, Any]:
        out: dict[str, Any] = {"name": name}
        if self.chance(0.6):
            out["image"] = self.random.choice(["a:1", "a:2"])
        if self.chance(0.4):
            out["ports"] = [self.port(80 + "abc".index(letter)) for letter in self.some("abc", 1)]
        if self.chance(0.4):
            out["env"] = [{"name": letter, "value": self.random.choice("12")} for letter in self.some("ABC", 1)]
        if self.chance(0.3):
            limits = {"limits": {"cpu": self.random.choice("12")}}
            out["resources"] = self.random.choice([{}, {"limits": {}}, limits, {"requests": {"cpu": "1"}, **limits}])
        if self.chance(0.3):
            out["args"] = self.some("xyz")
        return out

    def port(self, number: int) -> dict[str, Any]:
        out: dict[str, Any] = {"containerPort": number}
        if self.chance(0.5):
            out["name"] = f"p{number}"
        return {**out, "protocol": "UDP"} if self.chance(0.2) else out

    def pod_spec(self) -> dict[str, Any]:
        out: dict[str, Any] = {"containers": [self.container(name) for name in self.some("mno", 1)]}
        if self.chance(0.3):
            out["nodeSelector"] = {letter: self.random.choice("12") for letter in self.some("ab")}
        if self.chance(0.3):
            out["tolerations"] = [{"key": letter} for letter in self.some("ab")]
        if self.chance(0.3):
            out["volumes"] = [{"name": letter, "emptyDir": {}} for letter in self.some("ab", 1)]
        return out

    def daemon_set(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": "d"}
        if self.chance(0.5):
            metadata["labels"] = {letter: self.random.choice("12") for letter in self.some("abc")}
        if self.chance(0.3):
            metadata["finalizers"] = [f"x/{letter}" for letter in self.some("abc", 1)]
        spec: dict[str, Any] = {"template": {"spec": self.pod_spec()}}
        if self.chance(0.3):
            spec["selector"] = {"matchLabels": {"a": self.random.choice("12")}}
        if self.chance(0.3):
            spec["updateStrategy"] = self.random.choice([{"type": "OnDelete"}, {"rollingUpdate": {}}])
        return {**START, "metadata": metadata, "spec": spec}

    def changed(self, live: dict[str, Any]) -> dict[str, Any]:
        """The live object with one image or label changed, as a hand would."""
        out = json.loads(json.dumps(live))
        out["metadata"].pop("managedFields", None)
        containers = out.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        if containers and self.chance(0.7):
            self.random.choice(containers)["image"] = self.random.choice(["a:3", "a:4"])
        else:
            out["metadata"].setdefault("labels", {})[self.random.choice("abc")] = self.random.choice("12")
        return out


def _ask(oracle: subprocess.Popen[str], **request: Any) -> dict[str, Any]:
    oracle.stdin.write(json.dumps(request) + "\n")
    oracle.stdin.flush()
    return json.loads(oracle.stdout.readline())


def _step(live: dict[str, Any], op: str, manager: str, obj: dict[str, Any], force: bool) -> tuple[dict[str, Any], bool]:
    kind = definitions(36).kind("apps", "v1", "DaemonSet")
    scope = ssa.Scope(kind, ssa.Writer(manager, "Apply" if op == "apply" else "Update", "v1"), "now")
    try:
        if op == "apply":
            return ssa.apply(live, obj, scope, force=force), False
        return ssa.record_update(live, obj, scope), False
    except ApiError:
        return live, True


@pytest.mark.parametrize("seed", [1, 2])
def test_random_writes_come_out_as_the_library_has_them(oracle: subprocess.Popen[str], seed: int):
    writer = Writer(seed)
    for _ in range(SEQUENCES):
        live: dict[str, Any] = json.loads(json.dumps(START))
        _ask(oracle, op="start", obj=START)
        for _ in range(STEPS):
            op = writer.random.choice(["apply", "apply", "update"])
            manager = writer.random.choice("123") + op
            force = writer.chance(0.5)
            obj = writer.changed(live) if op == "update" and writer.chance(0.7) else writer.daemon_set()
            theirs = _ask(oracle, op=op, manager=manager, force=force, obj=obj)
            live, refused = _step(live, op, manager, obj, force)
            entries = live["metadata"].get("managedFields", [])
            mine = {entry["manager"]: entry["fieldsV1"] for entry in entries}
            stripped = {name: without(owned, ssa.NEVER_OWNED) for name, owned in theirs["managers"].items()}
            plain = {k: v for k, v in live["metadata"].items() if k != "managedFields"}
            assert (refused, {**live, "metadata": plain}) == (theirs["refused"], theirs["obj"])
            assert mine == {name: owned for name, owned in stripped.items() if owned}
