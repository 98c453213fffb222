"""How much of a device a request takes (consumable capacity, KEP-5075), amounts as quantities."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from modelplane_dagster.kube.quantity import canonical, format_quantity, parse_quantity
from modelplane_dagster.kube.slices import CapacityPolicy, PublishedDevice


def fits(requested: Mapping[str, str], device: PublishedDevice) -> bool:
    """Whether the device, with nothing taken from it, has what is requested.

    A capacity counts under the very key that the slice publishes: a bare `cpu` isn't `dra.cpu/cpu`.
    """
    for name, amount in requested.items():
        published = device.facts.capacity.get(name)
        granted = _granted(amount, device.policies.get(name))
        if published is None or granted is None or parse_quantity(granted) > parse_quantity(published):
            return False
    return True


def consumption(requested: Mapping[str, str], device: PublishedDevice) -> dict[str, str]:
    """What a share of the device takes of each capacity: as requested, else the policy's default, else all of it.

    The request must fit the device.
    """
    taken: dict[str, str] = {}
    for name, published in device.facts.capacity.items():
        policy = device.policies.get(name)
        if name in requested:
            taken[name] = _granted(requested[name], policy) or canonical(published)
        else:
            taken[name] = canonical(policy.default if policy and policy.default else published)
    return taken


def _granted(asked: str, policy: CapacityPolicy | None) -> str | None:
    """The requested amount, rounded up to what the policy allows; None where it allows none that large."""
    wanted = parse_quantity(asked)
    if policy is None or not (policy.values or policy.least):
        return canonical(asked)
    if policy.values:
        large = [v for v in policy.values if parse_quantity(v) >= wanted]
        return canonical(min(large, key=parse_quantity)) if large else None
    least = parse_quantity(policy.least)
    amount = max(wanted, least)
    if policy.step:
        step = parse_quantity(policy.step)
        steps: Decimal = ((amount - least) / step).to_integral_value(ROUND_CEILING)
        amount = least + steps * step
    if policy.most and amount > parse_quantity(policy.most):
        return None
    return canonical(asked) if amount == wanted else format_quantity(amount)
