"""What holds for every cluster: refusals change nothing, unknown parts make nothing, shared shapes change no result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelplane_dagster.actions import cluster_actions, cluster_orphans
from modelplane_dagster.audit.plan_audit import audit_plan
from modelplane_dagster.cluster import SOURCES, ClusterView
from modelplane_dagster.cluster_plan import ClusterPlan
from modelplane_dagster.components.join import Kept, join
from modelplane_dagster.components.lists import components_for
from modelplane_dagster.known import Known, Unknown
from modelplane_dagster.observed import ObservedCluster, ObservedComponent, ObservedControlPlane, ObservedPool
from modelplane_dagster.plan import plan_fleet
from modelplane_dagster.resolve import resolve
from modelplane_dagster.shapes import Shapes
from tests.made import AMD, NET, cls, cluster, cpus, device, fleet, nvidia, pool

BOUNDED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DEVICES: dict[str, list[Any]] = {
    "gpu": [nvidia(8)],
    "amd": [device(AMD, 8)],
    "cpu": [cpus(2, 6)],
    "wide": [cpus(1, 64)],
    "both": [nvidia(), cpus()],
    "net": [nvidia(8), device(NET, 32)],
    "board": [{**device("board.example.com"), "claim": "Synthetic"}],
    "strange": [device("gpu.example.com")],
    "vendors": [nvidia(), device(AMD, name="amd")],
}
VERSIONS = {"EKS": ["1.34", "1.35", "1.36"], "AKS": ["1.34", "1.36"], "GKE": ["1.35", "1.36"], "Nebius": ["1.34"]}
names = st.from_regex(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?", fullmatch=True)


@st.composite
def clusters(draw: st.DrawFn, name: str | None = None) -> tuple[dict[str, Any], ...]:
    """Classes and one cluster of them."""
    source = draw(st.sampled_from(SOURCES))
    own = "" if source == "Existing" else source
    kinds = draw(st.lists(st.sampled_from(sorted(DEVICES)), min_size=1, max_size=4, unique=True))
    missing = draw(st.booleans()) and draw(st.booleans())
    accelerator = {"type": "nvidia-l4", "count": 1} if draw(st.booleans()) else None
    fabric = {"fabric": {"type": "EFA"}} if source == "EKS" and draw(st.booleans()) else {}
    bounds = {"minNodeCount": 1, "maxNodeCount": 3} if draw(st.booleans()) else {}
    zones = {"zones": ["us-central1-a"]} if source == "GKE" else {}
    version = draw(st.sampled_from([None, *VERSIONS.get(source, [])]))
    place = {"kubernetesVersion": version} if version else {}
    pools = [pool(f"{k}-pool", k, **bounds, **(fabric if k in ("net", "gpu") else {}), **zones) for k in kinds]
    made = [cls(k, *DEVICES[k], source=own, accelerator=accelerator) for k in kinds[1 if missing else 0 :]]
    return (*made, cluster(name or draw(names), source, *pools, **place))


@st.composite
def seen(draw: st.DrawFn) -> ObservedCluster:
    """Anything that a look could have given; every part may be unknown."""

    def part(value: Any) -> Any:
        return draw(st.sampled_from([Unknown("it can't be read"), Known(value)]))

    plane = draw(st.sampled_from([None, ObservedControlPlane("ready", "1.36", ours=True, account="")]))
    pool_names = [f"{k}-pool" for k in draw(st.lists(st.sampled_from([*sorted(DEVICES), "lost"]), unique=True))]
    keys = draw(
        st.lists(st.sampled_from(["cert-manager", "dra-driver-cpu", "nvidia-dra-driver-gpu", "gone"]), unique=True)
    )
    return ObservedCluster(
        name="c",
        control_plane=part(plane),
        pools=part({n: ObservedPool(n, "ready") for n in pool_names}),
        components=part({k: ObservedComponent(k, draw(st.sampled_from(["deployed", "failed"]))) for k in keys}),
        replicas=part(()),
    )


def planned(objects: tuple[dict[str, Any], ...]) -> ClusterPlan:
    return plan_fleet(fleet(*objects)).clusters[0]


@BOUNDED
@given(clusters("c"), st.none() | seen())
def test_nothing_is_ever_deleted_and_a_refused_cluster_is_left_as_it_is(objects: Any, observed: Any) -> None:
    plan = planned(objects)
    actions = cluster_actions(plan, observed)
    assert {a.op for a in actions} <= {"create", "update", "install", "upgrade", "none"}
    if plan.gate.verdict != "pass":
        assert [(a.op, a.subject) for a in actions] == [("none", "cluster/c")]
    assert cluster_actions(plan, observed) == actions
    assert [a.subject for a in actions] == list(dict.fromkeys(a.subject for a in actions))


@BOUNDED
@given(clusters("c"), seen())
def test_what_couldnt_be_read_is_never_made(objects: Any, observed: ObservedCluster) -> None:
    made = {a.subject.split("/")[0] for a in cluster_actions(planned(objects), observed) if a.op != "none"}
    assert not (isinstance(observed.control_plane, Unknown) and "cluster" in made)
    assert not (isinstance(observed.pools, Unknown) and "pool" in made)
    absent = isinstance(observed.control_plane, Known) and observed.control_plane.value is None
    assert not (isinstance(observed.components, Unknown) and not absent and "component" in made)


@BOUNDED
@given(clusters("c"), seen())
def test_an_orphan_is_nothing_that_the_manifest_asks_for(objects: Any, observed: ObservedCluster) -> None:
    plan = planned(objects)
    wanted = {f"pool/c/{p['name']}" for p in objects[-1]["spec"]["nodePools"]}
    wanted |= {f"component/c/{c.key}" for c in plan.installed}
    left = {o.subject for o in cluster_orphans(plan, observed)}
    assert not left & wanted
    if plan.view is None:
        assert left == set()


def resolved(objects: tuple[dict[str, Any], ...]) -> ClusterView | None:
    return resolve(fleet(*objects), objects[-1]["metadata"]["name"], default_version="1.36").view


keeps = st.dictionaries(
    st.sampled_from(["node-feature-discovery", "nvidia-dra-driver-gpu", "dra-driver-cpu"]),
    st.builds(
        Kept, st.frozensets(st.sampled_from(["gpu-pool", "old"])), st.frozensets(st.sampled_from(["amd.com/gpu"]))
    ),
    max_size=2,
)


sizes = st.tuples(st.integers(0, 9), st.sampled_from([(None, None), (1, 3), (0, 5), (2, 7)]))
pool_names = st.one_of(st.none(), st.lists(names | st.just("system"), min_size=4, max_size=4, unique=True))
likes = st.tuples(
    names, st.sampled_from(["us-east-1", "eu-west-1", ""]), st.lists(sizes, min_size=4, max_size=4), pool_names
)


def alike(view: ClusterView, name: str, location: str, each: list[Any], called: list[str] | None) -> ClusterView:
    """Another cluster of the same pools: its name, place and sizes are its own, and their names where it calls them
    otherwise."""
    pools = []
    for number, (before, (count, (low, high))) in enumerate(zip(view.pools, each, strict=False)):
        own = called[number] if called else before.name
        renamed = replace(before, name=own, labels={**before.labels, "modelplane.ai/pool": own})
        pools.append(
            replace(renamed, cluster=name, count=count, minimum=low, maximum=high, zones=("z",) if count % 2 else ())
        )
    return replace(view, name=name, location=location, pools=tuple(pools), labels={"site": name}, account=name)


@BOUNDED
@given(clusters(), st.lists(likes, min_size=1, max_size=3), keeps)
def test_sharing_a_shape_changes_no_result(objects: Any, others: list[Any], keep: dict[str, Kept]) -> None:
    """Under each name the shared result is what the cluster alone would give."""
    view = resolved(objects)
    if view is None:
        return
    parts = components_for(view.source)
    shapes = Shapes()
    for own in [view, *(alike(view, *other) for other in others)]:
        joined, audit = shapes.plan(own, parts, keep)
        direct = join(own, parts, keep=keep)
        checked = audit_plan(own, direct.components)
        assert [
            (c.key, c.install, c.reason, c.values, c.manifests, c.prepares, c.serves) for c in joined.components
        ] == [(c.key, c.install, c.reason, c.values, c.manifests, c.prepares, c.serves) for c in direct.components]
        assert (joined.findings, audit.findings, audit.rows) == (direct.findings, checked.findings, checked.rows)
