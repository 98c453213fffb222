"""Credential plugins as small scripts: what they answer is read from a file, and each run leaves a line in another."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

V1 = "client.authentication.k8s.io/v1"
_SCRIPT = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "ran").open("a") as log:
    log.write(json.dumps({{"args": sys.argv[1:], "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"])}}) + "\\n")
plan = json.loads((here / "plan").read_text())
sys.stderr.write(plan["stderr"] + " ".join(os.environ.get(n, "") for n in plan["tell"]))
sys.stdout.write(plan["stdout"])
sys.exit(plan["status"])
"""


@dataclass(frozen=True)
class Plugin:
    folder: Path

    @property
    def command(self) -> str:
        return str(self.folder / "plugin")

    def answers(
        self,
        status: dict[str, Any] | None = None,
        *,
        text: str | None = None,
        code: int = 0,
        stderr: str = "",
        tell: Any = (),
    ) -> None:
        """What every run from now on gives: an ExecCredential of `status`, or `text` as it is."""
        body = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
        stdout = json.dumps(body) if text is None else text
        plan = {"stdout": stdout, "status": code, "stderr": stderr, "tell": list(tell)}
        (self.folder / "plan").write_text(json.dumps(plan))

    def runs(self) -> list[dict[str, Any]]:
        log = self.folder / "ran"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def user(self, **more: Any) -> dict[str, Any]:
        return {"exec": {"apiVersion": V1, "command": self.command, "interactiveMode": "Never", **more}}


def plugin(folder: Path) -> Plugin:
    folder.mkdir(parents=True, exist_ok=True)
    made = Plugin(folder)
    script = Path(made.command)
    script.write_text(_SCRIPT.format(python=sys.executable))
    script.chmod(0o700)
    return made
