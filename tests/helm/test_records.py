from __future__ import annotations

import pytest

from resources.helm_records import PendingRecord, clear_pending, pending_record
from resources.kubernetes import ClusterClient
from tests.cluster_client.server import scripted


def record(revision, status):
    labels = {"owner": "helm", "name": "mp-x", "status": status, "version": str(revision)}
    return {"metadata": {"name": f"sh.helm.release.v1.mp-x.v{revision}", "uid": f"u{revision}", "labels": labels}}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], None),
        ([record(9, "superseded"), record(10, "deployed")], None),
        ([record(9, "pending-install"), record(10, "deployed")], None),
        (
            [record(10, "pending-upgrade"), record(9, "deployed")],
            PendingRecord("mp-x", "x", 10, "pending-upgrade", "sh.helm.release.v1.mp-x.v10", "u10"),
        ),
    ],
)
def test_only_the_newest_record_counts(records, expected):
    with scripted((200, {"items": records})) as script:
        assert pending_record(ClusterClient(script.kubeconfig()), "mp-x", "x") == expected
        assert script.asked[0][1] == "/api/v1/namespaces/x/secrets?limit=500&labelSelector=owner%3Dhelm%2Cname%3Dmp-x"


def test_clearing_deletes_that_record_alone():
    with scripted((200, {})) as script:
        held = PendingRecord("mp-x", "x", 10, "pending-upgrade", "sh.helm.release.v1.mp-x.v10", "u10")
        assert clear_pending(ClusterClient(script.kubeconfig()), held)
        method, path, _, body = script.asked[0]
        assert (method, path) == ("DELETE", "/api/v1/namespaces/x/secrets/sh.helm.release.v1.mp-x.v10")
        assert body["preconditions"] == {"uid": "u10"}
