"""The import: a recipe, a bundle and floor files in, the component list of one source out, or the reasons why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from modelplane_dagster.components.types import Component
from modelplane_dagster.findings import Finding, finding, has_errors, ordered
from modelplane_dagster.importer.bundle import BundlePart, Manifest, parse_bundle
from modelplane_dagster.importer.differences import pin_findings
from modelplane_dagster.importer.hydrate import forced, hydrated, managed_findings
from modelplane_dagster.importer.narrow import DAEMON_KINDS, is_daemon, narrowed, narrowing
from modelplane_dagster.importer.recipe import ComponentRef, Recipe, invalid, parse_recipe
from modelplane_dagster.importer.tables import ALLOW, DROP, KEPT, KEYS, SUCCESSORS, Allowed
from modelplane_dagster.importer.types import BundleFile, Change, Dropped, Import, ImportedComponent, TextFile
from modelplane_dagster.kube.versions import KubernetesVersion

CHART_LABEL = "helm.sh/chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What was read: `root` is the bundle's folder, for messages; `problems` are what couldn't be read of it."""

    recipe: TextFile
    root: str
    bundle: tuple[BundleFile, ...]
    floors: tuple[TextFile, ...] = ()
    problems: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Work:
    """An import in progress. `added` maps keys to dependencies that a component of ours has beside the recipe's."""

    source: str
    root: str
    parts: dict[str, BundlePart]
    added: Mapping[str, tuple[str, ...]]
    components: list[ImportedComponent] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def successor(name: str) -> str:
    """What a component of a recipe is called since AICR 0.20."""
    return SUCCESSORS.get(name, name)


def import_bundle(source: str, inputs: Inputs, *, default_version: str, shipped: tuple[Component, ...]) -> Import:
    """The list of `source`. `default_version` is the Kubernetes version that its clusters get by default; `shipped` the
    list as it is now, the common one included, which the import is compared with and whose dependencies on components
    of our own it keeps."""
    recipe, found = parse_recipe(inputs.recipe, source)
    parts, more = parse_bundle(inputs.root, inputs.bundle)
    floors, problems = _floors(inputs.floors, source)
    work = _Work(source, inputs.root, parts, {} if recipe is None else _added(recipe, shipped))
    work.findings += [*inputs.problems, *found, *more, *problems]
    if recipe is not None:
        floors += [recipe.floor] if recipe.floor else []
        for ref in recipe.components:
            _component(work, recipe, ref)
        work.findings += _left_over(work, recipe)
    floor = max(floors, default=None)
    work.findings += _floor_findings(source, floor, default_version)
    refused = has_errors(work.findings)
    if not refused:
        work.findings += pin_findings(source, work.components, shipped)
    return Import(
        source=source,
        components=() if refused else tuple(work.components),
        dropped=tuple(work.dropped),
        changes=() if refused else tuple(work.changes),
        floor="" if floor is None else str(floor),
        findings=ordered(work.findings),
    )


def _added(recipe: Recipe, shipped: Iterable[Component]) -> dict[str, tuple[str, ...]]:
    """The shipped dependencies on what no recipe brings, such as the quota that GKE asks of critical pods."""
    keys = {ALLOW[name].key for ref in recipe.components if (name := successor(ref.name)) in ALLOW}
    recipes = (KEYS - KEPT) | keys
    return {c.key: tuple(d for d in c.depends_on if d not in recipes) for c in shipped}


def _floors(files: Iterable[TextFile], source: str) -> tuple[list[KubernetesVersion], list[Finding]]:
    floors: list[KubernetesVersion] = []
    found: list[Finding] = []
    for file in files:
        recipe, problems = parse_recipe(file, source)
        found += problems
        if recipe is not None and recipe.floor is not None:
            floors.append(recipe.floor)
    return floors, found


def _floor_findings(source: str, floor: KubernetesVersion | None, default: str) -> Iterator[Finding]:
    limit = KubernetesVersion.parse(default)
    if floor is not None and limit is not None and floor > limit:
        message = f"The recipe needs Kubernetes {floor}, and a cluster on {source} gets {default} by default."
        yield finding("FloorTooHigh", f"source/{source}", message)


def _component(work: _Work, recipe: Recipe, ref: ComponentRef) -> None:
    name = successor(ref.name)
    if name in DROP:
        work.dropped.append(Dropped(ref.name, DROP[name]))
        return
    allowed = ALLOW.get(name)
    if allowed is None:
        message = f"The recipe holds {ref.name}, and neither ALLOW nor DROP says what becomes of it."
        work.findings.append(finding("Unclassified", f"component/{work.source}/{ref.name}", message))
        return
    part = work.parts.get(ref.name) or work.parts.get(name) or BundlePart("")
    work.findings += _missing(work, recipe, ref, part)
    values, changes = hydrated(allowed.key, part.values or {}, ref.overrides)
    # Judged before anything is set here: what the bundle and the recipe say is what is judged.
    work.findings += managed_findings(allowed.key, values, work.source)
    values, more = forced(allowed.key, values)
    made, narrow = narrowed(
        values, allowed.key, lambda path: narrowing(allowed, daemon=is_daemon(allowed, path, values))
    )
    work.changes += [*changes, *more, *narrow]
    work.components.append(
        ImportedComponent(
            key=allowed.key,
            chart=ref.chart,
            repository=ref.source,
            version=ref.version,
            namespace=ref.namespace,
            drivers=tuple(sorted(allowed.drivers)),
            depends_on=_dependencies(work, allowed, ref),
            values=made,
            manifests=tuple(_manifest(work, allowed, m) for m in part.manifests),
        )
    )


def _missing(work: _Work, recipe: Recipe, ref: ComponentRef, part: BundlePart) -> Iterator[Finding]:
    """What the recipe names and the bundle doesn't hold."""
    where = part.folder or ref.name
    if ref.chart and part.values is None:
        yield invalid(work.root, f"{recipe.file} holds {ref.name}, and the bundle has no {where}/values.yaml")
    if not ref.chart and not part.manifests:
        yield invalid(work.root, f"{ref.name} has no chart, and the bundle has no manifests of it")
    there = {m.name for m in part.manifests}
    for path in ref.manifest_files or ():
        name = path.rpartition("/")[2]
        if name not in there:
            yield invalid(work.root, f"{recipe.file} names the manifest {name} of {ref.name}, and the bundle hasn't it")


def _left_over(work: _Work, recipe: Recipe) -> Iterator[Finding]:
    """Folders of the bundle that the recipe says nothing of: it was made from another recipe."""
    known = {name for ref in recipe.components for name in (ref.name, successor(ref.name))}
    for name, part in work.parts.items():
        if name in known:
            continue
        if successor(name) in ALLOW or successor(name) in DROP:
            yield invalid(work.root, f"the bundle holds {part.folder}, and {recipe.file} holds no such component")
        else:
            message = f"The bundle holds {part.folder}, and neither ALLOW nor DROP says what becomes of it."
            yield finding("Unclassified", f"component/{work.source}/{name}", message)


def _dependencies(work: _Work, allowed: Allowed, ref: ComponentRef) -> tuple[str, ...]:
    names = [successor(name) for name in ref.dependency_refs or ()]
    kept = {ALLOW[name].key for name in names if name in ALLOW}
    gone = sorted(name for name in names if name in DROP)
    ours = set(work.added.get(allowed.key, ())) - kept
    result = tuple(sorted(kept | ours))
    reasons = [f"{', '.join(gone)} isn't imported"] if gone else []
    reasons += [f"{', '.join(sorted(ours))} of our own comes first"] if ours else []
    if reasons:
        before = sorted(kept | set(gone))
        work.changes.append(Change(allowed.key, "dependencyRefs", before, list(result), "; ".join(reasons)))
    return result


def _manifest(work: _Work, allowed: Allowed, manifest: Manifest) -> dict[str, object]:
    """The object as carried: its tolerations narrowed, and without the label that says which chart version made it."""
    daemon = manifest.body["kind"] in DAEMON_KINDS or "" in allowed.daemons
    prefix = f"{manifest.name}[{manifest.number}]: "
    rule = narrowing(allowed, daemon=daemon)
    body, changes = narrowed(manifest.body, allowed.key, lambda _: rule, prefix=prefix)
    work.changes += changes
    labels = body["metadata"].get("labels")
    if isinstance(labels, dict) and CHART_LABEL in labels:
        reason = "the label is wrong as soon as the chart's version changes, and no chart makes the object here"
        path = f"{prefix}metadata.labels.{CHART_LABEL}"
        work.changes.append(Change(allowed.key, path, labels[CHART_LABEL], None, reason))
        labels = {name: value for name, value in labels.items() if name != CHART_LABEL}
        body = {**body, "metadata": {**body["metadata"], "labels": labels}}
    return body
