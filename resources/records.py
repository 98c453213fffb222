"""What we wrote down about clusters that we changed, a JSON file each: enough to find, list and prune them later."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from modelplane_dagster.errors import UnreadableError
from modelplane_dagster.observed import Record


class Records:
    """A folder of records. Writing replaces a file whole, so a killed process leaves the old or the new one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Record | None:
        """None for a cluster that was never changed. Raises UnreadableError for a record that can't be read."""
        path = self._path(name)
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return Record(
                name=raw["name"],
                source=raw["source"],
                location=raw["location"],
                account=raw["account"],
                digest=raw["digest"],
                pools={k: tuple(v) for k, v in raw["pools"].items()},
                credentials=(raw["credentials"][0], raw["credentials"][1]),
                kubeconfig=raw["kubeconfig"],
                deployments=tuple((d[0], d[1]) for d in raw["deployments"]) if "deployments" in raw else None,
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            msg = f"The record of cluster {name} can't be read ({type(error).__name__}); nothing is concluded from it."
            raise UnreadableError(msg) from error

    def names(self) -> tuple[str, ...]:
        """Every recorded cluster, sorted; empty when none was ever changed."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(p.stem for p in self._folder.glob("*.json")))

    def write(self, record: Record) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        body: dict[str, Any] = {
            "name": record.name,
            "source": record.source,
            "location": record.location,
            "account": record.account,
            "digest": record.digest,
            "pools": {k: list(v) for k, v in sorted(record.pools.items())},
            "credentials": list(record.credentials),
            "kubeconfig": record.kubeconfig,
        }
        if record.deployments is not None:
            body["deployments"] = [list(d) for d in sorted(record.deployments)]
        handle, temporary = tempfile.mkstemp(dir=self._folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(body, file, indent=1, sort_keys=True)
        Path(temporary).replace(self._path(record.name))

    def forget(self, name: str) -> None:
        """After a prune; nothing when there is none."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
