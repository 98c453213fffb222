"""A leg whose chain is broken at one link isn't healthy, and the finding names the link: label, daemon, driver or slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.kubernetes.legs.conftest import Fleet, loud
from tests.kubernetes.legs.fleet import AMD, BY_SOURCE, CPU, GPU

pytestmark = pytest.mark.kubernetes
SILENT = "driver-never-publishes"


@contextmanager
def silent(fleet: Fleet, source: str, pool: str) -> Iterator[None]:
    """The driver's agent runs and publishes nothing."""
    subject = f"pool/{BY_SOURCE[source].name}/{pool}"
    fleet.site.lab.fault(subject, SILENT)
    try:
        yield
    finally:
        fleet.site.lab.fault(subject, SILENT, on=False)


@contextmanager
def unready(fleet: Fleet, source: str, daemon: tuple[str, str]) -> Iterator[None]:
    """One pod of the daemon fails its probe; the next one in its place is well."""
    reading = fleet.read(BY_SOURCE[source])
    uid = reading.daemons()[daemon]["metadata"]["uid"]
    pod = next(
        p for p in reading.pods(daemon[0]) if uid in {o["uid"] for o in p["metadata"].get("ownerReferences", ())}
    )
    reading.fail_probe(daemon[0], pod["metadata"]["name"])
    try:
        yield
    finally:
        reading.core.delete_namespaced_pod(pod["metadata"]["name"], daemon[0], grace_period_seconds=0)


@contextmanager
def unlabelled(fleet: Fleet, source: str, pool: str, label: str) -> Iterator[None]:
    """The owner takes a label off a node."""
    reading = fleet.read(BY_SOURCE[source])
    node = next(name for name, of in reading.pool_of().items() if of == pool)
    value = reading.nodes()[node]["metadata"]["labels"][label]
    reading.core.patch_node(node, {"metadata": {"labels": {label: None}}})
    try:
        yield
    finally:
        reading.core.patch_node(node, {"metadata": {"labels": {label: value}}})


BROKEN: dict[str, tuple[str, str, Callable[[Fleet], AbstractContextManager[None]], str, str]] = {
    "slice, NVIDIA": (
        "Vultr",
        GPU,
        lambda f: silent(f, "Vultr", GPU),
        "SliceMissing",
        "link slice: no slice of the newest",
    ),
    "slice, AMD": (
        "Existing",
        AMD,
        lambda f: silent(f, "Existing", AMD),
        "SliceMissing",
        "link slice: no slice of the newest",
    ),
    "driver, CPUs": (
        "GKE",
        CPU,
        lambda f: unready(f, "GKE", ("dra-driver-cpu", "mp-dra-driver-cpu")),
        "DriverNotReady",
        "link driver: pod dra-driver-cpu/mp-dra-driver-cpu-",
    ),
    "label, CPUs": (
        "Existing",
        CPU,
        lambda f: unlabelled(f, "Existing", CPU, "modelplane.ai/cpu"),
        "LabelMissing",
        "link label: DaemonSet mp-dra-driver-cpu stays off",
    ),
}


@pytest.mark.parametrize(("source", "pool", "broken", "code", "text"), BROKEN.values(), ids=BROKEN.keys())
def test_the_broken_link_is_named(
    fleet: Fleet,
    source: str,
    pool: str,
    broken: Callable[[Fleet], AbstractContextManager[None]],
    code: str,
    text: str,
) -> None:
    leg = BY_SOURCE[source]
    subject = f"pool/{leg.name}/{pool}"
    with broken(fleet):
        seen = fleet.until(
            leg,
            lambda s: any(f["code"] == code and f["subject"] == subject and text in f["message"] for f in loud(s)),
        )
        assert seen["pools"][pool] == "unhealthy"
        assert seen["state"] != "converged"
    fleet.until_clean(leg)
