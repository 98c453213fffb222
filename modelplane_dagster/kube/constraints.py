"""A claim's constraints while devices are taken and given back, as kube-scheduler's allocator keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelplane_dagster.kube.cel import AttributeValue, DeviceFacts
from modelplane_dagster.kube.claims import Constraint


@dataclass(slots=True)
class Match:
    """All devices have the first one's value, of the same type: 1 and true are not the same."""

    rule: Constraint
    value: AttributeValue | None = None
    number: int = 0

    def add(self, request: str, device: DeviceFacts) -> bool:
        """Whether the device fits beside the others; it is then counted."""
        if not self.rule.applies(request):
            return True
        value = device.attribute(self.rule.attribute)
        if value is None:
            return False
        if self.number and not _same(value, self.value):
            return False
        self.value = value if not self.number else self.value
        self.number += 1
        return True

    def remove(self, request: str) -> None:
        if self.rule.applies(request):
            self.number -= 1


@dataclass(slots=True)
class Distinct:
    """Devices differ in the value. Upstream remembers one value a request, so of a request for three devices the third
    is compared with the second alone."""

    rule: Constraint
    values: dict[str, AttributeValue] = field(default_factory=dict)
    number: int = 0

    def add(self, request: str, device: DeviceFacts) -> bool:
        """Whether the device fits beside the others; it is then counted."""
        if not self.rule.applies(request):
            return True
        value = device.attribute(self.rule.attribute)
        if value is None:
            return False
        if self.number and any(_same(value, other) for other in self.values.values()):
            return False
        self.values[request.partition("/")[0]] = value
        self.number += 1
        return True

    def remove(self, request: str) -> None:
        if self.rule.applies(request):
            self.values.pop(request.partition("/")[0], None)
            self.number -= 1


State = Match | Distinct


def state_of(rule: Constraint) -> State:
    return Distinct(rule) if rule.distinct else Match(rule)


def _same(one: AttributeValue, other: AttributeValue | None) -> bool:
    return type(one) is type(other) and one == other
