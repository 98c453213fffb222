"""The daemon's own endpoints under `/lab/`: status, clusters, faults, kubeconfigs, stopping. A token guards them all."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, Any

import orjson

from resources.lab.api.app import Receive, Scope, Send, answer, body_of
from resources.lab.api.clusters import LabCluster
from resources.lab.api.errors import ApiError, bad_request

if TYPE_CHECKING:
    from resources.lab.daemon import Lab

Obj = dict[str, Any]
FAULTS = ("drop_connections", "slow", "unauthorized")


class Control:
    """ASGI application. Answers are JSON; refusals carry `message`."""

    def __init__(self, lab: Lab, token: str) -> None:
        self._lab = lab
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
            if not hmac.compare_digest(given, self._token):
                raise ApiError(401, "Unauthorized")
            raw = await body_of(receive) if scope["method"] in {"POST", "PUT"} else b""
            reply = self._route(scope["method"], scope["path"].strip("/").split("/")[1:], orjson.loads(raw or b"{}"))
        except orjson.JSONDecodeError as error:
            await answer(send, 400, orjson.dumps({"message": str(error)}))
        except ApiError as error:
            await answer(send, error.status, orjson.dumps({"message": error.message}))
        else:
            await answer(send, 200, orjson.dumps(reply))

    def _route(self, method: str, parts: list[str], body: Obj) -> Obj:
        clusters = self._lab.clusters
        match method, parts:
            case "GET", ["status"]:
                return self.status()
            case "POST", ["stop"]:
                self._lab.stop()
                return {}
            case "PUT", ["clusters", name]:
                clusters.add_cluster(name, **_cluster_arguments(body))
                return {}
            case "DELETE", ["clusters", name]:
                clusters.remove_cluster(name)
                return {}
            case "GET", ["clusters", name, "kubeconfig", user]:
                self._cluster(name)
                try:
                    return clusters.kubeconfig(name, user)
                except KeyError as error:
                    raise ApiError(404, f"the lab knows no user {user!r}") from error
            case "PUT", ["clusters", name, "faults", kind]:
                set_fault(self._cluster(name), kind, body.get("value", True))
                return {}
            case "DELETE", ["clusters", name, "faults", kind]:
                set_fault(self._cluster(name), kind, 0)
                return {}
            case "PUT", ["faults"]:
                self._fault(str(body.get("subject", "")), str(body.get("kind", "")), on=body.get("on", True) is True)
                return {}
            case "POST", ["clusters", name, "counts", "reset"]:
                self._cluster(name).meter.reset()
                return {}
        raise ApiError(404, f"the lab has no {method} /lab/{'/'.join(parts)}")

    def _cluster(self, name: str) -> LabCluster:
        found = self._lab.clusters.get(name)
        if found is None:
            raise ApiError(404, f"the lab has no cluster {name!r}")
        return found

    def _fault(self, subject: str, kind: str, *, on: bool) -> None:
        """A fault of any part, or of one cluster's API where the subject is `cluster/C`."""
        name = subject.removeprefix("cluster/")
        if subject.startswith("cluster/") and kind.replace("-", "_") in FAULTS:
            set_fault(self._cluster(name), kind.replace("-", "_"), float(on))
        elif not self._lab.set_fault(subject, kind, on):
            raise bad_request(f"the lab knows no fault {kind!r} of {subject!r}")

    def status(self) -> Obj:
        """Counts leave out the lab's own users."""
        more = self._lab.cluster_faults
        return {
            "pid": os.getpid(),
            "kind": self._lab.kind,
            "address": self._lab.clusters.address,
            "clusters": [
                _shown(cluster, more(cluster.name)) for cluster in sorted(self._lab.clusters, key=lambda c: c.name)
            ],
            **{name: show() for name, show in self._lab.shows.items()},
        }


def _shown(cluster: LabCluster, more: list[str]) -> Obj:
    counts, faults = cluster.meter.counts(), cluster.faults
    return {
        "name": cluster.name,
        "version": cluster.switches.git_version,
        "ready": cluster.ready,
        "reads": counts.reads,
        "writes": counts.writes,
        "deletes": counts.deletes,
        "dryRuns": counts.dry_runs,
        "faults": [*(kind for kind in FAULTS if getattr(faults, kind)), *more],
    }


def _cluster_arguments(body: Obj) -> Obj:
    known = {"version", "consumable_capacity", "critical_pods_quota", "refuse_keyless_tolerations", "ready"}
    if unknown := set(body) - known:
        raise bad_request(f"unknown arguments: {', '.join(sorted(unknown))}")
    if "version" not in body:
        raise bad_request("a cluster needs a version")
    return body


def set_fault(cluster: LabCluster, kind: str, value: float) -> None:
    """`slow` takes seconds, the others are on or off; 400 for a kind that isn't there."""
    if kind not in FAULTS:
        raise bad_request(f"the lab knows no fault {kind!r}: {', '.join(FAULTS)}")
    if kind == "slow":
        cluster.faults.slow = float(value)
    elif kind == "drop_connections":
        cluster.faults.drop_connections = bool(value)
    else:
        cluster.faults.unauthorized = bool(value)
