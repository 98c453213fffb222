"""What pydantic refuses, as findings: a code, the field path, what was expected and what was seen, and the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from modelplane_dagster.findings import Finding, finding
from modelplane_dagster.manifests.fields import REFUSED, Path, Violation
from modelplane_dagster.manifests.reader import Value
from modelplane_dagster.manifests.source import Origin
from modelplane_dagster.manifests.words import shown

MAX_FINDINGS = 200
"""Of one object. The last one says how many more there are."""

MAX_ERRORS = 5_000
"""Beyond this many, an object's errors aren't listed at all: a list of a million wrong entries would fill the memory."""

_MAX_WORD = 100
_MAX_NAME = 300

Annotation = Any
"""A type annotation; there is no narrower type for one."""

_NAMES = ("name", "className")
_EXPECTED = {
    "string_type": "a text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_PATTERNS = {"capacityReservationId": "cr- and hexadecimal digits, such as cr-0123456789abcdef0"}


def path_text(path: Path) -> str:
    """`spec.nodePools[0].className`; a key that holds a dot or slash is quoted in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif len(part) > _MAX_WORD:
            text += f'["{part[:_MAX_WORD]}..."]'
        elif part.replace("-", "").replace("_", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text or "the object"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely stands for; None where none is close."""
    if len(word) > _MAX_WORD:
        return None
    plain = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None


def problems(
    error: ValidationError, *, model: type[BaseModel], origin: Origin, subjects: Subjects
) -> tuple[Finding, ...]:
    """Every reason for which the object was refused, in the manifest's order."""
    if error.error_count() > MAX_ERRORS:
        message = f"the object has {error.error_count()} errors, too many to list"
        return (finding("InvalidValue", subjects.object, message, place=origin.place()),)
    found = [pair for detail in error.errors(include_url=False) for pair in _violations(detail, model)]
    more = len(found) - MAX_FINDINGS
    if more > 0:
        path, _ = found[MAX_FINDINGS]
        message = f"{more} more findings of this object aren't shown"
        found[MAX_FINDINGS:] = [(path, Violation("InvalidValue", message))]
    return tuple(
        finding(
            violation.code,
            subjects.of(path),
            f"{path_text(path)}: {violation.message}",
            fix=violation.fix or None,
            place=origin.place(path),
        )
        for path, violation in found
    )


class Subjects:
    """Whom a finding is about: the object, or the pool that the path is inside of."""

    def __init__(self, kind: str, name: str, *, namespace: str, data: Value) -> None:
        self.object = subject(kind, name, namespace)
        self._cluster = name if kind == "InferenceCluster" else None
        self._data = data

    def of(self, path: Path) -> str:
        match path:
            case ("spec", "nodePools", int(index), *_) if self._cluster is not None:
                try:
                    pool = self._data["spec"]["nodePools"][index]["name"]
                except (KeyError, IndexError, TypeError):
                    return self.object
                if isinstance(pool, str) and 0 < len(pool) <= _MAX_NAME:
                    return f"pool/{self._cluster}/{pool}"
        return self.object


def subject(kind: str, name: str, namespace: str = "") -> str:
    """Whom a finding about an object is about. A name beyond all limits is cut."""
    if len(name) > _MAX_NAME or len(namespace) > _MAX_NAME:
        name, namespace = name[:_MAX_NAME], namespace[:_MAX_NAME]
    match kind:
        case "InferenceCluster":
            return f"cluster/{name}"
        case "InferenceClass":
            return f"class/{name}"
        case "ModelDeployment":
            return f"deployment/{namespace}/{name}"
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"


def _violations(detail: ErrorDetails, model: type[BaseModel]) -> Iterator[tuple[Path, Violation]]:
    path, kind, seen = detail["loc"], detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx") or {}
    if kind == REFUSED:
        for violation in context["violations"]:
            yield (*path, *violation.at), violation
    elif kind == "missing":
        yield path, Violation("MissingField", "this field is required")
    elif kind == "extra_forbidden":
        yield path, _unknown(path, model)
    elif kind in _EXPECTED:
        yield path, _wrong_type(path, _EXPECTED[kind], seen)
    elif kind == "literal_error":
        yield path, _not_among(model, path, seen)
    elif kind == "too_short" and len(seen) >= context["min_length"]:
        return  # pydantic counts the valid entries alone; the invalid ones have findings of their own
    else:
        code = "InvalidName" if path and path[-1] in _NAMES and kind.startswith("string_too") else "InvalidValue"
        yield path, Violation(code, _bound(path, kind, context) or detail["msg"])


def _unknown(path: Path, model: type[BaseModel]) -> Violation:
    known = sorted(_fields(_annotation(model, path[:-1])))
    near = nearest(str(path[-1]), known)
    if near:
        return Violation("UnknownField", f"there is no such field; the nearest is {near}", (), f"Write {near}.")
    listed = f"; there are {', '.join(known)}" if known else ""
    return Violation("UnknownField", f"there is no such field{listed}")


def _wrong_type(path: Path, expected: str, seen: object) -> Violation:
    fix = ""
    if expected == "a text" and isinstance(seen, int | float):
        fix = "Put the value in quotes."
    elif expected == "an integer" and isinstance(seen, str):
        fix = "Write the number without quotes."
    return Violation("WrongType", f"expected {expected}, and got {_kind_of(path, seen)}", (), fix)


def _kind_of(path: Path, seen: object) -> str:
    """What was seen. Values of environment variables aren't shown: they may be secrets."""
    secret = "env" in path
    match seen:
        case None:
            return "nothing"
        case bool():
            return "true or false" if secret else str(seen).lower()
        case int() | float():
            return "a number" if secret else f"the number {shown(seen)}"
        case str():
            return "a text" if secret else f"the text {shown(seen)}"
        case list() | tuple():
            return "a list"
    return "a mapping"


def _not_among(model: type[BaseModel], path: Path, seen: object) -> Violation:
    allowed = [str(value) for value in _literals(_annotation(model, path))]
    near = nearest(seen, allowed) if isinstance(seen, str) else None
    seen_text = shown(seen) if isinstance(seen, str) else _kind_of(path, seen)
    message = f"expected one of {', '.join(allowed)}, and got {seen_text}"
    return Violation("InvalidValue", message, (), f"Write {near}." if near else "")


def _bound(path: Path, kind: str, context: dict[str, Any]) -> str | None:
    """The bound that a value crosses, in words."""
    match kind:
        case "string_too_short":
            return f"expected at least {context['min_length']} characters"
        case "string_too_long":
            return f"expected at most {context['max_length']} characters"
        case "too_short":
            return f"expected at least {context['min_length']} entries, and got {context['actual_length']}"
        case "too_long":
            return f"expected at most {context['max_length']} entries, and got {context['actual_length']}"
        case "greater_than_equal":
            return f"expected at least {context['ge']}"
        case "less_than_equal":
            return f"expected at most {context['le']}"
        case "less_than":
            return f"expected less than {context['lt']}"
        case "string_pattern_mismatch":
            return f"expected {_PATTERNS.get(str(path[-1]), context['pattern'])}"
    return None


def _annotation(model: Annotation, path: Path) -> Annotation:
    """The annotation of the field at `path`; None where the models have none there."""
    here = model
    for part in path:
        here = _plain(here)
        origin, arguments = get_origin(here), get_args(here)
        if origin is tuple and isinstance(part, int):
            here = arguments[0]
        elif origin is dict:
            here = arguments[1]
        elif isinstance(here, type) and issubclass(here, BaseModel):
            here = next((f.annotation for n, f in here.model_fields.items() if (f.alias or n) == part), None)
        else:
            return None
    return _plain(here)


def _plain(annotation: Annotation) -> Annotation:
    """Without `Annotated` and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            annotation = next(part for part in get_args(annotation) if part is not type(None))
        else:
            return annotation


def _fields(annotation: Annotation) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [field.alias or name for name, field in annotation.model_fields.items()]
    return []


def _literals(annotation: Annotation) -> tuple[Any, ...]:
    return get_args(annotation)
