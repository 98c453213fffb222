"""What a fault can be set on, and which kinds there are for it: judged before the daemon is told, which forgets nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from modelplane_dagster.drivers import POOL_LABEL
from modelplane_dagster.errors import ConfigError, ModelplaneError
from resources.kubernetes import ClusterClient
from resources.lab.agents.faults import AgentFault
from resources.lab.agents.seed import read_seed, seed_path
from resources.lab.clouds.model import Fault
from resources.lab.control import FAULTS

if TYPE_CHECKING:
    from modelplane_dagster.manifests.fleet import Fleet
    from resources.lab.client import LabClient

_FORMS = MappingProxyType({"cloud": "cloud/SOURCE", "cluster": "cluster/C", "pool": "pool/C/P"})
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{kind.value: ("pool",) for kind in (*Fault, *AgentFault)},
        Fault.LOST_REPLY.value: ("pool", "cluster"),
        Fault.THROTTLING.value: ("cloud",),
        **{kind.replace("_", "-"): ("cluster",) for kind in FAULTS},
    }
)
"""Each fault, with what it can be set on."""


def known_subjects(lab: LabClient, fleet: Fleet) -> frozenset[str]:
    """The lab's clouds, the clusters and pools of the fleet's manifests, made yet or not, and those that the lab runs."""
    status = lab.status()
    running = [str(row["name"]) for row in status["clusters"]]
    found = {f"cloud/{source}" for source in status.get("clouds", {})}
    found |= {f"cluster/{name}" for name in (*fleet.clusters, *running)}
    found |= {f"pool/{name}/{p.name}" for name, c in fleet.clusters.items() for p in c.spec.node_pools}
    # A lab that was only just started hasn't made its seed's nodes yet.
    seeded = {name: [n.labels.get(POOL_LABEL, "") for n in c.nodes] for name, c in read_seed(seed_path()).items()}
    for name in running:
        if name not in fleet.clusters:
            found |= {f"pool/{name}/{pool}" for pool in seeded.get(name) or _pools(lab, name) if pool}
    return frozenset(found)


def _pools(lab: LabClient, name: str) -> Iterable[str]:
    """Those of a cluster that no manifest names, by its nodes; empty where its API doesn't answer."""
    try:
        client = ClusterClient(lab.kubeconfig(name, "user"), name=name)
        nodes = client.list("v1", "Node", labels=POOL_LABEL)
    except ModelplaneError:
        return ()
    return [str(n["metadata"]["labels"][POOL_LABEL]) for n in nodes]


def check_fault(subject: str, kind: str, known: Collection[str]) -> None:
    """Raises ConfigError for a kind that isn't there, one that isn't for such a subject, and a subject that isn't there, in
    this order; the message names what is."""
    forms = KINDS.get(kind.replace("_", "-"))
    if forms is None:
        raise ConfigError(
            f"The lab knows no fault {kind!r}{_near(kind, KINDS)}. Its faults: {', '.join(sorted(KINDS))}."
        )
    form, _, name = subject.partition("/")
    if form not in forms or not name:
        takes = " or ".join(_FORMS[f] for f in forms)
        raise ConfigError(f"The fault {kind} is set on {takes}, and {subject!r} isn't one.")
    if subject not in known:
        alike = {k.partition("/")[2]: k for k in sorted(known) if k.startswith(f"{form}/")}
        close = difflib.get_close_matches(name, alike, n=3, cutoff=0.6)
        hint = f"; the nearest: {', '.join(alike[c] for c in close)}" if close else ""
        hint = hint or (f". There are: {_few(list(alike.values()))}" if alike else "")
        raise ConfigError(
            f"Neither the lab nor the fleet's manifests hold {subject}{hint}. Another fleet is named by --fleet or "
            "MODELPLANE_FLEET."
        )


def _near(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; the nearest: {', '.join(close)}" if close else ""


def _few(names: list[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
