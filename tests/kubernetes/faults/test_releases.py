"""A release that a killed helm left pending is cleared and installed once; a helm ends with whoever started it."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from resources.kubernetes import ClusterClient
from tests.kubernetes.faults.conftest import Installed, pending
from tests.kubernetes.faults.ground import Ground, kept

pytestmark = pytest.mark.kubernetes
RELEASE, SPACE = "mp-lws", "lws-system"


def test_an_install_that_was_killed_goes_on_and_installs_once(installed: Installed) -> None:
    """The helm that was at work went with its parent, which renews no Lease any more; its record was left pending."""
    assert pending(installed.killed)
    assert installed.orphans == ()
    # What came to stand, before other tests gave releases other values.
    after = {name: tuple(r.status for r in rows) for name, rows in installed.histories.items()}
    stood = [name for name, states in installed.killed.releases.items() if states == ("deployed",)]
    assert {name: after[name] for name in stood} == dict.fromkeys(stood, ("deployed",))
    assert all(after[name][-1] == "deployed" for name in pending(installed.killed))
    found = installed.ground.stands()
    assert {ref: found.uids.get(ref) for ref in installed.killed.uids} == dict(installed.killed.uids)


@pytest.mark.parametrize("status", ["pending-upgrade", "pending-rollback"])
def test_a_pending_record_is_cleared_and_nothing_else(made: Ground, status: str) -> None:
    """As a helm leaves it that was killed before it changed anything: a second revision whose end was never recorded."""
    with kept(made, upgraded=RELEASE), made.client("helm") as api:
        plant(api, status)
        assert made.stands().releases[RELEASE][-1] == status
        ran = made.live.reconcile("90s").clean()
        assert ran.status == 0, ran
        states = made.stands().releases[RELEASE]
        assert states[-1] == "deployed"
        assert not [s for s in states if s.startswith("pending-")]


def plant(api: ClusterClient, status: str) -> None:
    secrets = api.list("v1", "Secret", namespace=SPACE, labels=f"owner=helm,name={RELEASE}")
    newest = max(secrets, key=lambda s: int(s["metadata"]["labels"]["version"]))
    body = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(newest["data"]["release"]))))
    revision = int(body["version"]) + 1
    body["version"], body["info"]["status"] = revision, status
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(body).encode()))).decode()
    labels = {**newest["metadata"]["labels"], "version": str(revision), "status": status}
    name = f"sh.helm.release.v1.{RELEASE}.v{revision}"
    metadata = {"name": name, "namespace": SPACE, "labels": labels}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": newest["type"],
            "metadata": metadata,
            "data": {"release": packed},
        }
    )
