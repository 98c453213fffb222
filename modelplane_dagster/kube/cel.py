"""CEL selectors of DRA device classes and requests: compiled once, judged per device.

As on the API server an expression that errs, or gives anything but a bool, is an error and never "no match": it aborts
the whole allocation. Kubernetes' cost limit and its gated `includes()` are not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from cel_expr_python import cel

from modelplane_dagster.errors import ConfigError, ModelplaneError
from modelplane_dagster.kube.cel_env import CHECKING, EVALUATING, quantity_value, semver_value
from modelplane_dagster.kube.versions import SemverValue

MAX_BYTES = 10 * 1024
"""The API's limit for one expression."""

_CACHED_RESULTS = 16384
_LITERAL = re.compile(r'"([^"\\\n]*)"|\'([^\'\\\n]*)\'')
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
# The library puts its status before the position; the first line says what is wrong.
_POSITION = re.compile(r"^INVALID_ARGUMENT: (?:ERROR: )?(?:<input>:)?")

AttributeValue = str | int | bool | SemverValue
Value = TypeVar("Value")


class SelectorSyntaxError(ConfigError):
    """The expression doesn't compile, can't be a bool, or is over 10 KiB; the message says what and where."""


class SelectorEvaluationError(ModelplaneError):
    """The expression errs on this device or gives no bool: an allocation that meets it is aborted."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as selectors see it. A name without a domain belongs to the driver's; capacities are quantities as written."""

    driver: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    allow_multiple: bool = False
    _shape: str = field(default="", init=False, repr=False, compare=False)

    @property
    def shape(self) -> str:
        """Equal for devices that no selector can tell apart; the name isn't in it."""
        if not self._shape:
            facts = (self.driver, self.allow_multiple, sorted(self.attributes.items()), sorted(self.capacity.items()))
            # Written on first use: most devices are read for their names alone.
            object.__setattr__(self, "_shape", repr(facts))
        return self._shape

    def __hash__(self) -> int:
        return hash((self.name, self.shape))

    def attribute(self, qualified: str) -> AttributeValue | None:
        """By whole name, then, where the domain is the driver's, by the bare one; None where the device lacks it."""
        return _lookup(self.attributes, qualified, self.driver)

    def amount(self, qualified: str) -> str | None:
        """A capacity, looked up like an attribute."""
        return _lookup(self.capacity, qualified, self.driver)


def _lookup(values: Mapping[str, Value], qualified: str, driver: str) -> Value | None:
    found = values.get(qualified)
    if found is None:
        domain, slash, name = qualified.rpartition("/")
        found = values.get(name) if slash and domain == driver else None
        if found is None and not slash:
            found = values.get(f"{driver}/{qualified}")
    return found


class Selector:
    """A compiled expression. It remembers its result for each shape of device, so identical devices cost one look-up."""

    __slots__ = ("_domains", "_expression", "_fields", "_results", "text")

    def __init__(self, text: str, expression: cel.Expression) -> None:
        self.text = text
        self._expression = expression
        # An unknown domain reads as an empty map in Kubernetes and as an error in the library. Any literal may be one.
        literals = (a or b for a, b in _LITERAL.findall(text))
        self._domains = tuple(dict.fromkeys(literal for literal in literals if _DOMAIN.fullmatch(literal)))
        self._fields = frozenset(f for f in ("attributes", "capacity", "allowMultipleAllocations") if f in text)
        self._results: dict[str, bool | str] = {}

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    @property
    def by_driver_alone(self) -> bool:
        """It reads nothing but the driver, so that it says the same of each of a driver's devices."""
        return not self._fields

    def matches(self, device: DeviceFacts) -> bool:
        """Raises SelectorEvaluationError."""
        # Without another field the driver decides alone, and writing out a device's shape costs more than judging it.
        key = device.driver if self.by_driver_alone else device.shape
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= _CACHED_RESULTS:
                self._results.clear()
            result = self._results[key] = self._judge(device)
        if isinstance(result, str):
            raise SelectorEvaluationError(f"the selector {self.text!r} fails on device {device.name or '?'}: {result}")
        return result

    def _judge(self, device: DeviceFacts) -> bool | str:
        try:
            value = self._expression.eval(data={"device": self._data(device)})
        except (RuntimeError, ValueError, TypeError, ModelplaneError) as error:
            return str(error)
        result = value.plain_value()
        if isinstance(result, bool) and value.type() == cel.Type.BOOL:
            return result
        return _first_line(str(result)) if value.type() == cel.Type.ERROR else f"it gives {result!r}, which is no bool"

    def _data(self, device: DeviceFacts) -> dict[str, Any]:
        """The fields that the expression names: what it can't read isn't handed over, which halves the time."""
        data: dict[str, Any] = {"driver": device.driver}
        if "allowMultipleAllocations" in self._fields:
            data["allowMultipleAllocations"] = device.allow_multiple
        if "attributes" in self._fields:
            data["attributes"] = attributes = self._domains_of(device)
            for name, value in device.attributes.items():
                domain, _, ident = name.rpartition("/")
                known = semver_value(value.text) if isinstance(value, SemverValue) else value
                attributes.setdefault(domain or device.driver, {})[ident] = known
        if "capacity" in self._fields:
            data["capacity"] = capacity = self._domains_of(device)
            for name, amount in device.capacity.items():
                domain, _, ident = name.rpartition("/")
                capacity.setdefault(domain or device.driver, {})[ident] = quantity_value(amount)
        return data

    def _domains_of(self, device: DeviceFacts) -> dict[str, dict[str, Any]]:
        return {domain: {} for domain in (*self._domains, device.driver)}


@lru_cache(maxsize=4096)
def compile_selector(text: str) -> Selector:
    """The same expression gives the same selector, with its remembered results. Raises SelectorSyntaxError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorSyntaxError("the selector holds a character that isn't Unicode text") from error
    if size > MAX_BYTES:
        raise SelectorSyntaxError(f"the selector is {size} bytes long, and the limit is {MAX_BYTES}")
    try:
        result = CHECKING.compile(text).return_type()
        expression = EVALUATING.compile(text)
    except (RuntimeError, ValueError) as error:
        raise SelectorSyntaxError(f"the selector {_short(text)} doesn't compile: {_first_line(str(error))}") from error
    if result not in (cel.Type.BOOL, cel.Type.DYN):
        raise SelectorSyntaxError(f"the selector {_short(text)} gives {result.name()}, and must give a bool")
    return Selector(text, expression)


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def _first_line(message: str) -> str:
    return _POSITION.sub("", message.strip().splitlines()[0] if message.strip() else "no message")
