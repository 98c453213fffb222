"""Versions: a cluster's Kubernetes version in every cloud's spelling, and the strict semver of DRA attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering

import semver

from modelplane_dagster.errors import ConfigError

# "1.36", "v1.36.1", "1.35.2-gke.100", "v1.36.1+3", "1.34.1-k3s1", "1.36+", "v1.33.4-eks-113cf36".
_KUBERNETES = re.compile(
    r"v?(?P<major>[0-9]{1,4})\.(?P<minor>[0-9]{1,4})(?:\.(?P<patch>[0-9]{1,6}))?(?P<rest>[-+][0-9A-Za-z.+_-]*)?"
)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class KubernetesVersion:
    """Ordered and equal by major, minor and patch; a vendor's suffix and a missing patch (0) don't count.

    `text` is the version as written.
    """

    major: int
    minor: int
    patch: int = 0
    text: str = ""

    @classmethod
    def parse(cls, text: str | None) -> KubernetesVersion | None:
        """None is unknown: no text, an alias such as "latest", or a text that holds no major and minor number."""
        match = _KUBERNETES.fullmatch((text or "").strip())
        if match is None:
            return None
        return cls(int(match["major"]), int(match["minor"]), int(match["patch"] or 0), (text or "").strip())

    @property
    def triple(self) -> tuple[int, int, int]:
        return self.major, self.minor, self.patch

    @property
    def release(self) -> str:
        """Major and minor alone, such as "1.36"."""
        return f"{self.major}.{self.minor}"

    def __eq__(self, other: object) -> bool:
        return self.triple == other.triple if isinstance(other, KubernetesVersion) else NotImplemented

    def __lt__(self, other: KubernetesVersion) -> bool:
        return self.triple < other.triple

    def __hash__(self) -> int:
        return hash(self.triple)

    def __str__(self) -> str:
        return self.text or f"{self.major}.{self.minor}.{self.patch}"


class SemverError(ConfigError):
    """The text isn't a semantic version 2.0.0; the message quotes it."""


@dataclass(frozen=True, slots=True, repr=False)
class SemverValue:
    """A DRA `version` attribute. Make it with `parse`, which checks the text."""

    text: str

    @classmethod
    def parse(cls, text: str) -> SemverValue:
        """Raises SemverError for anything but strict semver 2.0.0 ("9.0", "v9.0.0" and "1.02.3" aren't)."""
        parse_semver(text)
        return cls(text)

    def __repr__(self) -> str:
        # The generated one takes most of the time of telling devices apart.
        return f"SemverValue({self.text!r})"

    @property
    def version(self) -> semver.Version:
        return parse_semver(self.text)


@lru_cache(maxsize=4096)
def parse_semver(text: str) -> semver.Version:
    """Strict semver 2.0.0. Raises SemverError."""
    try:
        # The length bound is that of a DRA version attribute.
        if len(text) <= 64:
            return semver.Version.parse(text)
    except (ValueError, TypeError):
        pass
    raise SemverError(f"{str(text)[:64]!r} is not a semantic version such as 1.2.3")
