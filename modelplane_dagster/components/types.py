"""What a component is, and the declared workloads that audits read and the lab's stand-in charts are generated from.

One fact, one place: a declared workload says its kind, name, reach, selectors, affinity and tolerations, and which
values path sets each of them. Nothing beside it repeats where a workload may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from modelplane_dagster.cluster import ClusterView, PoolView

# A value as JSON or YAML holds it.
Json: TypeAlias = Any
Values = dict[str, Any]
ReachKind = Literal["only", "at least", "where", "all"]
WorkloadKind = Literal["DaemonSet", "Deployment", "StatefulSet", "Job"]
Origin = Literal["chart", "operator"]
T = TypeVar("T")
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Pin:
    """A chart at a version. `checked` is the day (ISO) on which the pin was reviewed, `read` what was read for it."""

    chart: str
    repository: str
    version: str
    checked: str
    read: str


@dataclass(frozen=True, slots=True)
class Knob:
    """One part of a pod's placement. `path` is the dotted path that sets it (in the chart's values, or in the custom
    resource's spec for a daemon that an operator makes); empty where nothing sets it. `default` is what stands there
    when nothing is set: Helm merges maps and replaces lists. `fixed` is what the template adds whatever is set.

    `form` says what stands at the path: `plain` is the part itself; `label lists` is `{"keys": [..], "values": [..]}`,
    from which the template makes one required affinity term a key, the key being in the values; `node affinity` is the
    affinity without its outer key `nodeAffinity`. `empty` says what an empty list does: it clears the default, keeps
    it, or drops `fixed` along with it."""

    path: str = ""
    default: Any = None
    fixed: Any = None
    form: Literal["plain", "label lists", "node affinity"] = "plain"
    empty: Literal["clears", "keeps default", "drops fixed"] = "clears"


@dataclass(frozen=True, slots=True)
class CustomResource:
    """The object that an operator makes its daemons from. `values_root` is where in the chart's values its spec is
    copied from (empty for the root of the values), None where the object is a manifest of ours instead."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    values_root: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which nodes a node-level workload must run on. `only`: those of the pools that claim one of its drivers (or that
    the component's `when` names), and no other node; `at least`: those and maybe others; `where`: those among them for
    which a condition holds, by the `labels` that mark them; `all`: every node."""

    kind: ReachKind
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWorkload:
    """A workload that a component brings. `name` may hold `{cr}`, the name of the custom resource it is made from.
    `reach` is None for Deployments, StatefulSets and hook Jobs, which need one node that takes them. `publishes` is
    the driver whose ResourceSlices its pods publish. `host_ports` holds ports on the host's network. `enabled` is the
    values path (or spec path) that turns it on, with `enabled_default`; empty means always. `drivers` narrows the
    component's tags, empty means the component's own."""

    kind: WorkloadKind
    name: str
    namespace: str = ""
    reach: Reach | None = None
    origin: Origin = "chart"
    resource: CustomResource | None = None
    node_selector: Knob = Knob()
    affinity: Knob = Knob()
    tolerations: Knob = Knob()
    drivers: frozenset[str] = frozenset()
    publishes: str = ""
    priority_class: str = ""
    host_network: bool = False
    host_ports: tuple[int, ...] = ()
    cpu_request: str = ""
    pod_labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ports: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    hook: str = ""
    enabled: str = ""
    enabled_default: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Labels that a component puts on nodes whose hardware serves `driver`: by the workload named `by` on the node
    where it runs, or by a controller where `by` is empty; only on nodes that already carry the labels of `needs`."""

    labels: Mapping[str, str]
    driver: str
    by: str = ""
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Same(Generic[T]):
    """A function of the cluster that gives every cluster the same value, and says so: what follows from it is worked
    out once. Nobody changes the value in place."""

    value: T

    def __call__(self, view: ClusterView) -> T:
        return self.value


@dataclass(frozen=True, slots=True)
class When:
    """A pure condition over a cluster's pools. `pools` gives the pools that it binds the component to; the component
    is installed when there is one. `sentence` completes "because ..."."""

    sentence: str
    pools: Callable[[ClusterView], tuple[PoolView, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One Helm chart (`pin`) or one set of manifests. `drivers` are its tags: untagged components go everywhere.
    `settings` types every values path that we may set and that isn't a workload's knob ("boolean", "string",
    "integer", "number", "array", "object"; an object admits anything below it); `resource_settings` does it for the
    spec of the custom resources among `manifests` that an operator makes workloads from. `manifests` are objects of ours,
    applied server-side, alone or after the chart is installed. `publishes` is the driver whose slices its daemons
    publish, `publishes_more` what a site's overlay adds to it. `device_classes` are those that it creates.
    `crds` are those that its chart brings. `crds_need_apply` says that they stand in its `crds/` folder and no hook of the
    chart upgrades them: Helm doesn't, so they are applied before an upgrade to another version.
    `takes_along` says, for prune, what the chart's own hooks delete beyond its release."""

    key: str
    release: str = ""
    namespace: str = ""
    pin: Pin | None = None
    drivers: frozenset[str] = frozenset()
    when: When | None = None
    publishes: str = ""
    publishes_more: frozenset[str] = frozenset()
    depends_on: tuple[str, ...] = ()
    values: Callable[[ClusterView], Values] | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    resource_settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    manifests: Callable[[ClusterView], tuple[dict[str, Any], ...]] | None = None
    workloads: tuple[DeclaredWorkload, ...] = ()
    grants: tuple[Grant, ...] = ()
    device_classes: tuple[str, ...] = ()
    crds: tuple[CustomResource, ...] = ()
    crds_need_apply: bool = False
    takes_along: str = ""

    @property
    def published(self) -> frozenset[str]:
        """Every driver whose slices it publishes; empty for none."""
        return self.publishes_more | ({self.publishes} if self.publishes else set())

    def bound_to(self, view: ClusterView) -> tuple[PoolView, ...]:
        """The pools that it serves: those that `when` names or whose class claims one of its tags that the platform
        team doesn't serve itself; for an untagged component without a condition, all."""
        if self.when is not None:
            return self.when.pools(view)
        return view.claiming(*view.ours(self.drivers)) if self.drivers else view.pools


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedComponent:
    """A component as one cluster gets it, or doesn't: `reason` says why in either case. `prepares` are the objects to
    apply before the chart (its namespace and the quota there), `manifests` those to apply after it. Values and objects
    are empty where it isn't installed."""

    component: Component
    install: bool
    reason: str
    values: Values
    prepares: tuple[dict[str, Any], ...] = ()
    manifests: tuple[dict[str, Any], ...] = ()
    serves: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.component.key
