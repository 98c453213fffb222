"""The CEL environment of DRA selectors: `quantity()` and `semver()` with their methods, strings, optionals, bindings.

Two environments, because what checks well evaluates slowly. `CHECKING` knows the type of `device`, so that a misspelt
field or a comparison of unlike types fails to compile, as it does on the API server. `EVALUATING` takes plain dicts, and
a quantity or a version there is a byte string: a type that selectors have no other use for, whose equality is that of
the value it spells, and several times faster to hand over than a message.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

import semver
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2

from modelplane_dagster.kube.quantity import is_quantity, parse_quantity
from modelplane_dagster.kube.versions import SemverError, parse_semver

if TYPE_CHECKING:
    from collections.abc import Callable

_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_MANY = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def _pool() -> descriptor_pool.DescriptorPool:
    """`k8s.Quantity`, `k8s.Semver` (neither has a field that an expression could read) and `k8s.Device`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="modelplane/dra.proto", package="k8s", syntax="proto3", dependency=["google/protobuf/struct.proto"]
    )
    file.message_type.add(name="Quantity")
    file.message_type.add(name="Semver")
    device = file.message_type.add(name="Device")
    device.field.add(name="driver", number=1, type=_STRING, label=_ONE)
    device.field.add(name="allowMultipleAllocations", number=2, type=_BOOL, label=_ONE)
    for number, name in ((3, "attributes"), (4, "capacity")):
        entry = device.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_STRING, label=_ONE)
        entry.field.add(name="value", number=2, type=_MESSAGE, label=_ONE, type_name=".google.protobuf.Struct")
        device.field.add(
            name=name, number=number, type=_MESSAGE, label=_MANY, type_name=f".k8s.Device.{name.capitalize()}Entry"
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool


_QUANTITY, _VERSION = b"q", b"v"


@lru_cache(maxsize=16384)
def quantity_value(text: str) -> bytes:
    """The CEL value of a quantity. Equal amounts make equal values: "1Gi" == "1024Mi". Raises QuantityError."""
    return _amount(parse_quantity(text))


def _amount(number: Decimal) -> bytes:
    # Adding 0 turns a negative zero into zero; nine places are all that a quantity has.
    return _QUANTITY + format(number + 0, ".9f").encode()


@lru_cache(maxsize=4096)
def semver_value(text: str) -> bytes:
    """The CEL value of a version; build metadata is dropped, because it doesn't count in comparisons. Raises SemverError."""
    return _VERSION + str(parse_semver(text).replace(build=None)).encode()


@lru_cache(maxsize=16384)
def _decimal(value: bytes) -> Decimal:
    if value[:1] != _QUANTITY:
        raise TypeError("a quantity is needed here, and this is a version")
    return Decimal(value[1:].decode())


def _version(value: bytes) -> semver.Version:
    if value[:1] != _VERSION:
        raise TypeError("a version is needed here, and this is a quantity")
    return parse_semver(value[1:].decode())


@lru_cache(maxsize=16384)
def _compare(left: bytes, right: bytes) -> int:
    if left[:1] != right[:1]:
        raise TypeError("only two quantities or two versions can be compared")
    if left[:1] == _VERSION:
        return _version(left).compare(_version(right))
    one, other = _decimal(left), _decimal(right)
    return (one > other) - (one < other)


def _plus(left: bytes, right: bytes | int, sign: int) -> bytes:
    return _amount(_decimal(left) + sign * (Decimal(right) if isinstance(right, int) else _decimal(right)))


def _is_integer(value: bytes) -> bool:
    number = _decimal(value)
    return number == number.to_integral_value() and -(2**63) <= number < 2**63


def _as_integer(value: bytes) -> int:
    if not _is_integer(value):
        raise ValueError("the quantity is no 64-bit integer")
    return int(_decimal(value))


def _normal(text: str) -> str:
    """`text` as Kubernetes normalises it: no leading v, three parts, no leading zeros; prerelease and build kept."""
    core, mark, rest = text.removeprefix("v"), "", ""
    for at, letter in enumerate(core):
        if letter in "-+":
            core, mark, rest = core[:at], letter, core[at + 1 :]
            break
    parts = [part.lstrip("0") or "0" if part else part for part in core.split(".")]
    return ".".join([*parts, *["0"] * (3 - len(parts))]) + mark + rest


def _is_semver(text: str) -> bool:
    try:
        parse_semver(text)
    except SemverError:
        return False
    return True


_T = cel.Type
_Kinds = tuple[cel.Type, cel.Type]
_TYPED: _Kinds = (_T("k8s.Quantity"), _T("k8s.Semver"))
_PLAIN: _Kinds = (_T.BYTES, _T.BYTES)


def _overload(name: str, result: cel.Type, parameters: list[cel.Type], impl: Callable[..., object]) -> cel.Overload:
    """A member of its first parameter, unless that is a string: those are the global constructors."""
    ident = "_".join([name, *(p.name().replace(".", "_") for p in parameters)])
    if parameters[0] == _T.STRING:
        return cel.Overload(ident, return_type=result, parameters=parameters, is_member=False, impl=impl)

    def member(*values: bytearray | int) -> object:
        # The library hands bytes over as bytearrays, which no cache takes.
        return impl(*[bytes(value) if isinstance(value, bytearray) else value for value in values])

    return cel.Overload(ident, return_type=result, parameters=parameters, is_member=True, impl=member)


def _extension(kinds: _Kinds) -> cel.CelExtension:
    quantity, version = kinds
    declared: dict[str, list[cel.Overload]] = {}

    def add(name: str, result: cel.Type, parameters: list[cel.Type], impl: Callable[..., object]) -> None:
        declared.setdefault(name, []).append(_overload(name, result, parameters, impl))

    add("quantity", quantity, [_T.STRING], quantity_value)
    add("isQuantity", _T.BOOL, [_T.STRING], is_quantity)
    add("sign", _T.INT, [quantity], lambda q: int(_decimal(q).compare(Decimal(0))))
    add("isInteger", _T.BOOL, [quantity], _is_integer)
    add("asInteger", _T.INT, [quantity], _as_integer)
    add("asApproximateFloat", _T.DOUBLE, [quantity], lambda q: float(_decimal(q)))
    for other in (quantity, _T.INT):
        add("add", quantity, [quantity, other], lambda q, o: _plus(q, o, 1))
        add("sub", quantity, [quantity, other], lambda q, o: _plus(q, o, -1))
    add("semver", version, [_T.STRING], semver_value)
    add("semver", version, [_T.STRING, _T.BOOL], lambda text, fix: semver_value(_normal(text) if fix else text))
    add("isSemver", _T.BOOL, [_T.STRING], _is_semver)
    add("isSemver", _T.BOOL, [_T.STRING, _T.BOOL], lambda text, fix: _is_semver(_normal(text) if fix else text))
    add("major", _T.INT, [version], lambda v: _version(v).major)
    add("minor", _T.INT, [version], lambda v: _version(v).minor)
    add("patch", _T.INT, [version], lambda v: _version(v).patch)
    for kind in dict.fromkeys(p.name() for p in kinds):
        pair = [_T.BYTES if kind == _T.BYTES.name() else _T(kind)] * 2
        add("compareTo", _T.INT, pair, _compare)
        add("isGreaterThan", _T.BOOL, pair, lambda a, b: _compare(a, b) > 0)
        add("isLessThan", _T.BOOL, pair, lambda a, b: _compare(a, b) < 0)
    return cel.CelExtension("kubernetes", [cel.FunctionDecl(name, found) for name, found in declared.items()])


def _environment(device: cel.Type, kinds: _Kinds) -> cel.Env:
    extensions = [_extension(kinds), ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()]
    return cel.NewEnv(descriptor_pool=_pool(), variables={"device": device}, extensions=extensions)


CHECKING = _environment(_T("k8s.Device"), _TYPED)
EVALUATING = _environment(_T.Map(_T.STRING, _T.DYN), _PLAIN)
