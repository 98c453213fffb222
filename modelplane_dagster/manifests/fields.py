"""What every manifest model is built of: the frozen base, the field types, and how a rule refuses a value.

A check raises `Refused`, which carries finding codes, not texts to be parsed; `problems` turns it into findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from modelplane_dagster.manifests import words

Path = tuple[str | int, ...]

REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong: a finding code, where below the checked value, and a sentence without the field path.

    `fix` is empty where the code's own fix says enough.
    """

    code: str
    message: str
    at: Path = ()
    fix: str = ""


def refused(*violations: Violation) -> PydanticCustomError:
    """The error by which a check refuses a value, holding every reason."""
    return PydanticCustomError(REFUSED, "refused", {"violations": violations})


def refuse_any(violations: Iterable[Violation]) -> None:
    """Raises when there is a violation, with all of them."""
    found = tuple(violations)
    if found:
        raise refused(*found)


# One set for each combination of fields; models are frozen, and a copy makes a set of its own.
_GIVEN: dict[frozenset[str], set[str]] = {}


class Manifest(BaseModel):
    """A frozen part of a manifest. Attributes are snake_case and the manifest's own names are the aliases.

    Code may build one by attribute names; a manifest is read by its own names only.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def model_post_init(self, _context: object) -> None:
        """Shares the set of given fields between models that were given the same ones: it takes more than the fields."""
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN.setdefault(frozenset(given), given))


def _text_check(code: str, check: Callable[[str], str | None]) -> AfterValidator:
    """A validator that refuses a text under `code` when `check` says what is wrong with it."""

    def run(value: str) -> str:
        wrong = check(value)
        if wrong:
            raise refused(Violation(code, wrong))
        return value

    return AfterValidator(run)


def _sorted(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(sorted(value.items()))


def _unique_names(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """The list's key is `name`, as in the API; a second entry of one name would shadow the first."""
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        refuse_any(
            Violation(
                "RuleViolated",
                f"the entry {name!r} stands in the list twice; each name may stand there once",
                (index, "name"),
                "Rename or remove one of them.",
            )
            for index, name in enumerate(names)
            if name in names[:index]
        )
    return entries


T = TypeVar("T")

Seq = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list of a manifest, kept as a tuple."""

NamedSeq = Annotated[tuple[T, ...], Strict(strict=False), AfterValidator(_unique_names)]
"""A list whose entries have a `name` each, and no name twice."""

Texts = Annotated[dict[str, str], AfterValidator(_sorted)]
"""A mapping of texts, sorted by key, so that equal manifests are equal however they are written."""

SortedMap = Annotated[dict[str, T], AfterValidator(_sorted)]

Int = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]
Text = Annotated[str, Field(min_length=1)]
Text32 = Annotated[str, Field(min_length=1, max_length=32)]
Text63 = Annotated[str, Field(min_length=1, max_length=63)]
Text253 = Annotated[str, Field(min_length=1, max_length=253)]

Subdomain = Annotated[str, _text_check("InvalidName", words.not_subdomain)]
Label = Annotated[str, _text_check("InvalidName", words.not_label)]
PoolName = Annotated[str, _text_check("InvalidName", words.not_pool_name)]
LabelSized = Annotated[str, _text_check("InvalidName", words.not_subdomain_in_label)]
Quantity = Annotated[str, Field(min_length=1, max_length=32), _text_check("InvalidQuantity", words.not_quantity)]
Semver = Annotated[str, Field(max_length=32), _text_check("InvalidVersion", words.not_semver)]
TaintKey = Annotated[str, _text_check("InvalidValue", words.not_taint_key)]
Selector = Annotated[str, Field(min_length=1, max_length=10240), _text_check("InvalidSelector", words.not_selector)]


def version_of(source: str) -> AfterValidator:
    """A Kubernetes version in the form that a source takes."""
    return _text_check("InvalidVersion", words.not_kubernetes_version(source))


class Metadata(Manifest):
    """What is read of an object's metadata; fields that a server sets are accepted and left out."""

    name: Subdomain
    labels: Texts = Field(default_factory=dict)
    annotations: Texts = Field(default_factory=dict)


class ShortMetadata(Metadata):
    """For kinds whose name becomes a label value: at most 63 characters."""

    name: LabelSized


class NamespacedMetadata(Metadata):
    """`namespace` is `default` where the manifest gives none."""

    namespace: Label = "default"


class ShortNamespacedMetadata(NamespacedMetadata):
    name: LabelSized
