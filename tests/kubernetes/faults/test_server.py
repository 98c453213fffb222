"""The API server dies, stands still, answers late, or knows us no more: a clear status each time, and convergence after."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from modelplane_dagster.errors import AccessError, ModelplaneError
from resources.kubernetes import ClusterClient
from resources.lab.plane.keys import Authority
from tests.kubernetes.faults.between import Asked, Cut, door
from tests.kubernetes.faults.conftest import Installed
from tests.kubernetes.faults.ground import DEPLOYMENT, NAME, Ground, converges, kept, late, until

pytestmark = pytest.mark.kubernetes


def test_the_server_killed_twice_in_the_middle_of_an_install(installed: Installed) -> None:
    assert len(set(installed.servers)) == 2
    ran = installed.ran.clean()
    assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran
    found = installed.ground.stands()
    assert len(found.releases) == 8
    assert {states[-1] for states in found.releases.values()} == {"deployed"}
    # A helm that the dying server cut off recorded a failure and was asked again; what it recorded as done wasn't.
    for name, revisions in installed.histories.items():
        assert [r.complete for r in revisions] == [*([False] * (len(revisions) - 1)), True], (name, revisions)
    assert {ref: found.uids.get(ref) for ref in installed.killed.uids} == dict(installed.killed.uids)
    with kept(installed.ground):
        converges(installed.ground)


def changed(made: Ground, args: str = "--port=8001") -> None:
    """Something for the next reconcile to do."""
    made.live.write("small.yaml", DEPLOYMENT.replace("--port=8000", args))


def restored(made: Ground) -> None:
    made.live.write("small.yaml", DEPLOYMENT)


def test_a_server_that_stands_still_for_a_while_only_takes_time(made: Ground) -> None:
    with kept(made):
        changed(made)
        process = made.live.start("reconcile", str(made.live.folder), "--timeout", "150s")
        assert process.stderr is not None
        until(lambda: "pass 1" in process.stderr.readline(), "the first pass")
        with made.stopped("kube-apiserver"):
            time.sleep(12)
        out, err = process.communicate(timeout=200)
        assert (process.returncode, "Traceback" in out + err) == (0, False), (out, err)
        restored(made)


def test_a_slow_server_is_no_lost_one(made: Ground) -> None:
    """A third of a second an answer, which is a hundred times the usual, through the lab's own door to the same cluster."""
    site = replace(made.lab, folder=made.live.folder)
    with kept(made):
        site.lab.set_fault(NAME, "slow", 0.35)
        try:
            changed(made)
            ran = site.reconcile("150s").clean()
            assert (ran.status, ran.json["verdict"]) == (0, "converged"), ran.json
        finally:
            site.lab.clear_fault(NAME, "slow")
        restored(made)


def test_a_server_that_refuses_us_is_told_of_through_the_lab_too(made: Ground) -> None:
    site = replace(made.lab, folder=made.live.folder)
    with kept(made):
        site.lab.set_fault(NAME, "unauthorized")
        try:
            subject, message, _ = late(site.reconcile("6s"))["CredentialsRefused"]
        finally:
            site.lab.clear_fault(NAME, "unauthorized")
        assert (subject, message) == (
            "cluster/metal",
            "Cluster metal: the API refuses the kubeconfig's credentials (401 Unauthorized).",
        )


def certificate(made: Ground, valid: timedelta) -> dict[str, object]:
    pair = Authority(made.plane).client("ops", ["system:masters"], valid=valid)
    return made.kubeconfig("ops", **pair.user())


def revoked(made: Ground) -> dict[str, object]:
    return made.kubeconfig("user", token="not-a-token-of-anybody")


def expired(made: Ground) -> dict[str, object]:
    return certificate(made, timedelta(hours=-1))


@pytest.mark.parametrize(
    ("broken", "code", "says"),
    [
        (revoked, "CredentialsRefused", "the API refuses the kubeconfig's credentials (401 Unauthorized)."),
        (expired, "CertificateExpired", "the kubeconfig's client certificate expired on "),
    ],
)
def test_credentials_that_are_refused_from_the_start(
    made: Ground, broken: Callable[[Ground], dict[str, object]], code: str, says: str
) -> None:
    with kept(made):
        changed(made)
        made.give(broken(made))
        try:
            subject, message, fix = late(made.live.reconcile("5s"))[code]
        finally:
            made.give(made.kubeconfig("user"))
        assert subject == "cluster/metal"
        assert says in message
        assert re.search("renew", fix, re.IGNORECASE)
        restored(made)


def refuses(kubeconfig: dict[str, Any]) -> bool:
    """The API server is up and knows the token no more."""
    client = ClusterClient(kubeconfig, name=NAME, retries=0)
    try:
        client.list("v1", "Namespace")
    except AccessError:
        return True
    except ModelplaneError:
        return False
    finally:
        client.close()
    return False


def test_a_token_revoked_in_the_middle(made: Ground) -> None:
    """After the lease was taken, before the first change arrives: the server is started anew without the token, and asked
    only then. The lease is found by the next run and is its own."""
    tokens = made.plane / "tokens.csv"
    rows = tokens.read_text()
    mine = "".join(row for row in rows.splitlines(keepends=True) if ",user," in row)
    given, lock = made.kubeconfig("user"), threading.Lock()
    stopped: list[str] = []

    def revoke(asked: Asked) -> Cut:
        with lock:
            if not stopped and asked.method != "GET" and "/leases" not in asked.path and "dryRun" not in asked.path:
                stopped.append(asked.path)
                tokens.write_text(rows.replace(mine, ""))
                made.kill("kube-apiserver")
                until(lambda: refuses(given), "the server back, without the token")
        return ""

    with kept(made), door(given) as way:
        changed(made)
        way.rule = revoke
        made.give(way.kubeconfig())
        try:
            ran = made.live.spawn("reconcile", str(made.live.folder), "--timeout", "6s", "--format", "json")
        finally:
            tokens.write_text(rows)
            old = made.kill("kube-apiserver")
            made.revived("kube-apiserver", old)
            made.give(given)
        subject, message, _ = late(ran)["CredentialsRefused"]
        assert len(stopped) == 1
        assert (subject, message) == (
            "cluster/metal",
            "Cluster metal: the API refuses the kubeconfig's credentials (401 Unauthorized).",
        )
        restored(made)


def test_a_certificate_that_expires_in_the_middle(made: Ground) -> None:
    """And is renewed where it comes from, while the run goes on: the run takes the new one."""
    with kept(made):
        expires = time.monotonic() + 12
        made.give(certificate(made, timedelta(seconds=12)))
        ran = made.live.run("plan", str(made.live.folder), "--observe", "--format", "json").clean()
        assert ran.status == 0, ran
        changed(made)
        process = made.live.start("reconcile", str(made.live.folder), "--timeout", "90s", "--format", "json")
        time.sleep(max(0.0, expires + 1 - time.monotonic()))
        made.give(made.kubeconfig("user"))
        out, err = process.communicate(timeout=200)
        assert (process.returncode, "Traceback" in out + err) == (0, False), (out, err)
        restored(made)
