"""What objects say about each other: pools and their classes, counts and bounds, and images without a tag."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from modelplane_dagster.findings import Finding, Severity, finding
from modelplane_dagster.manifests.fields import Path
from modelplane_dagster.manifests.models import InferenceClass, InferenceCluster, ModelDeployment, NodePool
from modelplane_dagster.manifests.problems import nearest, path_text, subject
from modelplane_dagster.manifests.source import Origin
from modelplane_dagster.manifests.words import shown

_MAX_COMPARED = 100
"""Among more classes than this no near name is looked for: it takes longer than everything else together."""


def cluster_references(
    cluster: InferenceCluster,
    origin: Origin,
    *,
    classes: Mapping[str, InferenceClass],
    broken: Collection[str],
) -> Iterator[Finding]:
    """Everything wrong between a cluster's pools and their classes. `broken` names the classes that are invalid."""
    for index, pool in enumerate(cluster.spec.node_pools):
        at: Path = ("spec", "nodePools", index)
        about = f"pool/{cluster.name}/{pool.name}"
        for code, field, message, fix, severity in (*_class(cluster, pool, classes, broken), *_counts(pool)):
            path = (*at, field)
            text = f"{path_text(path)}: {message}"
            yield finding(code, about, text, fix=fix, place=origin.place(path), severity=severity)


_Row = tuple[str, str, str, str | None, Severity | None]


def _class(
    cluster: InferenceCluster, pool: NodePool, classes: Mapping[str, InferenceClass], broken: Collection[str]
) -> Iterator[_Row]:
    name, source = pool.class_name, cluster.source
    found = classes.get(name)
    if found is None and name in broken:
        message = f"the class {name!r} has errors of its own, so what the pool claims isn't known"
        yield "ClassInvalid", "className", message, None, None
        return
    if found is None:
        near = nearest(name, (*classes, *broken)) if len(classes) <= _MAX_COMPARED else None
        fix = f"Write {near}, or add the class {name}." if near else None
        yield "ClassNotFound", "className", f"no manifest holds the class {shown(name)}", fix, None
        return
    provisioning = found.spec.provisioning
    if provisioning is None:
        if source != "Existing":
            message = f"the class {name!r} doesn't say how {source} makes its nodes"
            fix = f"Add spec.provisioning with provider {source} to the class."
            yield "ProvisioningMissing", "className", message, fix, None
    elif source == "Existing":
        # The API leaves the block out for pools that exist, and reads such a class all the same.
        message = f"the class {name!r} says how {provisioning.provider} makes nodes, which an Existing cluster ignores"
        yield "ProviderMismatch", "className", message, None, Severity.WARNING
    elif provisioning.provider != source:
        message = f"the class {name!r} is for {provisioning.provider}, and the cluster's source is {source}"
        yield "ProviderMismatch", "className", message, None, None


def _counts(pool: NodePool) -> Iterator[_Row]:
    low, high = pool.min_node_count, pool.max_node_count
    if low is not None and high is not None and low > high:
        message = f"the least count {low} is over the greatest, maxNodeCount {high}"
        yield "CountOutOfBounds", "minNodeCount", message, None, None
        return
    if "node_count" not in pool.model_fields_set:
        return
    if low is not None and pool.node_count < low:
        message = f"the count {pool.node_count} is under minNodeCount {low}"
        yield "CountOutOfBounds", "nodeCount", message, None, None
    if high is not None and pool.node_count > high:
        message = f"the count {pool.node_count} is over maxNodeCount {high}"
        yield "CountOutOfBounds", "nodeCount", message, None, None


def image_warnings(deployment: ModelDeployment, origin: Origin) -> Iterator[Finding]:
    """Images that name neither a tag nor a digest."""
    about = subject("ModelDeployment", deployment.name, deployment.namespace)
    for engine_index, engine in enumerate(deployment.engines):
        for member_index, member in enumerate(engine.members):
            container = member.container
            if container is None or _pinned(container.image):
                continue
            engines: Path = ("spec", "template", "spec", "engines", engine_index)
            path = (*engines, "members", member_index, "template", "spec", "containers", 0, "image")
            text = f"{path_text(path)}: {shown(container.image)} has neither tag nor digest"
            yield finding("ImageWithoutTag", about, text, place=origin.place(path))


def _pinned(image: str) -> bool:
    """A colon before the last slash is a registry's port, not a tag."""
    return "@" in image or ":" in image.rpartition("/")[2]
