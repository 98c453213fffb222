"""What a prune leaves on an Existing cluster, as commands for its owners: CRDs and namespaces, which may hold what isn't ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from modelplane_dagster.components.types import Component
from resources.lease import NAME, NAMESPACE
from resources.observe import COMPONENT_LABEL

if TYPE_CHECKING:
    from resources.kubernetes import ClusterClient

SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease", "kube-public", "default")


def left_behind(client: ClusterClient, components: Iterable[Component], installed: Collection[str]) -> tuple[str, ...]:
    """One command a kind, for what wasn't there before us: made no earlier than our Lease, which comes before our first
    write. Empty where there is nothing, or no Lease to tell by. Raises UnreadableError where it can't be read."""
    lease = client.get("coordination.k8s.io/v1", "Lease", NAME, namespace=NAMESPACE)
    if lease is None:
        return ()
    since = str(lease["metadata"]["creationTimestamp"])
    chosen = [c for c in components if c.key in installed]
    crds = {f"{r.plural}.{r.api_version.partition('/')[0]}" for c in chosen for r in c.crds}
    spaces = {c.namespace for c in chosen if c.namespace and c.namespace not in SYSTEM_NAMESPACES}
    found = []
    for kind, api_version, names, word in (
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1", crds, "crd"),
        ("Namespace", "v1", spaces, "namespace"),
    ):
        ours = [
            str(body["metadata"]["name"])
            for body in client.list(api_version, kind)
            if body["metadata"]["name"] in names
            and str(body["metadata"]["creationTimestamp"]) >= since
            # A CRD that we applied ourselves goes with its component; namespaces of ours stay, whoever marked them.
            and (kind == "Namespace" or COMPONENT_LABEL not in (body["metadata"].get("labels") or {}))
        ]
        if ours:
            found.append(f"kubectl delete {word} {' '.join(sorted(ours))}")
    return tuple(found)
