"""What a scheduler reads of nodes and pods: taints, tolerations, selectors. Facts only; `scheduling` holds the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Taint:
        return cls(str(raw["key"]), str(raw.get("value") or ""), str(raw.get("effect", "NoSchedule")))

    def as_dict(self) -> dict[str, str]:
        return {"key": self.key, "value": self.value, "effect": self.effect}

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """An empty `key` means any key, an empty `effect` any effect; `operator` is Equal, Exists, Lt or Gt."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Toleration:
        return cls(
            str(raw.get("key") or ""),
            str(raw.get("operator") or "Equal"),
            str(raw.get("value") or ""),
            str(raw.get("effect") or ""),
        )

    def as_dict(self) -> dict[str, str]:
        """As a pod spec writes it: empty fields left out."""
        parts = {"key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect}
        return {name: part for name, part in parts.items() if part}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One `matchExpressions` or `matchFields` entry; `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Requirement:
        return cls(str(raw["key"]), str(raw["operator"]), tuple(str(v) for v in raw.get("values") or ()))


@dataclass(frozen=True, slots=True)
class Term:
    """A node selector term: all its expressions and fields hold. An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Term:
        return cls(
            tuple(Requirement.parse(r) for r in raw.get("matchExpressions") or ()),
            tuple(Requirement.parse(r) for r in raw.get("matchFields") or ()),
        )


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod template may run.

    `affinity` is the required node affinity: None where the template has none, and the empty tuple where it has no
    terms, which matches nothing.
    """

    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> PodPlacement:
        """From a pod spec as JSON."""
        node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return cls(
            MappingProxyType(dict(spec.get("nodeSelector") or {})),
            None if required is None else tuple(Term.parse(t) for t in required.get("nodeSelectorTerms") or ()),
            tuple(Toleration.parse(t) for t in spec.get("tolerations") or ()),
            str(spec.get("nodeName") or ""),
        )


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What placement reads of a node. `pool` is the value of `modelplane.ai/pool`, empty on a node of no pool.

    `created` is in seconds since the epoch, 0 where it isn't known (a planned node). `allocatable` holds quantities as written.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    terminating: bool = False
    created: float = 0.0
    allocatable: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @property
    def pool(self) -> str:
        return self.labels.get("modelplane.ai/pool", "")
