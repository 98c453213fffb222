"""What is wrong with a name, version, quantity or selector, as a sentence; None where nothing is.

The limits are Kubernetes' own unless a line says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from modelplane_dagster.kube.cel import SelectorSyntaxError, compile_selector
from modelplane_dagster.kube.quantity import QuantityError, parse_quantity

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SEMVER = re.compile(
    r"(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)"
    r"(?:-(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

MAX_POOL_NAME = 40
MAX_LABEL = 63
MAX_SUBDOMAIN = 253


def shown(value: object) -> str:
    """A value as a message shows it: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def not_subdomain(name: str) -> str | None:
    if len(name) > MAX_SUBDOMAIN:
        return f"a name has at most {MAX_SUBDOMAIN} characters, and this one has {len(name)}"
    if not _SUBDOMAIN.fullmatch(name):
        return f"a name is lowercase letters, digits, '-' and '.', edged by letters or digits, and not {shown(name)}"
    return None


def not_subdomain_in_label(name: str) -> str | None:
    """For a name that also becomes a label value."""
    if len(name) > MAX_LABEL:
        return f"this name becomes a label value of at most {MAX_LABEL} characters, and it has {len(name)}"
    return not_subdomain(name)


def _not_dns_label(name: str, limit: int) -> str | None:
    if len(name) > limit:
        return f"this name has at most {limit} characters, and it has {len(name)}"
    if not _LABEL.fullmatch(name):
        return f"this name is lowercase letters, digits and '-', edged by letters or digits, and not {shown(name)}"
    return None


def not_label(name: str) -> str | None:
    return _not_dns_label(name, MAX_LABEL)


def not_pool_name(name: str) -> str | None:
    """Forty characters are the API's limit."""
    return _not_dns_label(name, MAX_POOL_NAME)


def not_label_key(key: str) -> str | None:
    """For the keys of labels, annotations and taints."""
    prefix, slash, name = key.rpartition("/")
    if slash and len(prefix) > MAX_SUBDOMAIN:
        return f"the prefix of a key has at most {MAX_SUBDOMAIN} characters"
    if (slash and not _SUBDOMAIN.fullmatch(prefix)) or not _QUALIFIED.fullmatch(name):
        return f"a key is an optional DNS prefix with '/' and a name of up to 63 characters, and not {shown(key)}"
    return None


def not_label_value(value: str) -> str | None:
    if not _LABEL_VALUE.fullmatch(value):
        return (
            "a label value is up to 63 letters, digits, '-', '_' and '.', edged by letters or digits, "
            f"and not {shown(value)}"
        )
    return None


def not_taint_key(key: str) -> str | None:
    if "=" in key or ":" in key:
        return f"give the taint's key alone, without value and effect, and not {shown(key)}"
    return not_label_key(key)


def not_quantity(text: str) -> str | None:
    try:
        parse_quantity(text)
    except QuantityError:
        return f"a Kubernetes quantity is a number with an optional suffix such as Gi, M or m, and not {shown(text)}"
    return None


def not_semver(text: str) -> str | None:
    """DRA compares version attributes as semantic versions: three numbers, no leading v."""
    if not _SEMVER.fullmatch(text):
        return f"a version attribute is a semantic version such as 9.0.0, and not {shown(text)}"
    return None


def not_selector(text: str) -> str | None:
    """Each different expression is compiled once in a process."""
    try:
        compile_selector(text)
    except SelectorSyntaxError as error:
        return error.message
    return None


# The forms that the clouds' APIs accept; Existing declares none.
_KUBERNETES = {
    "EKS": (re.compile(r"1\.[0-9]{1,3}"), "a minor version such as 1.36"),
    "GKE": (
        re.compile(r"latest|1\.[0-9]{1,3}(\.[0-9]{1,4}(-gke\.[0-9]+)?)?"),
        "1.35, 1.35.2, 1.35.2-gke.100 or latest",
    ),
    "AKS": (re.compile(r"1\.[0-9]{1,3}(\.[0-9]{1,4})?"), "1.34 or 1.34.2"),
    "Nebius": (re.compile(r"1\.[0-9]{1,3}"), "a minor version such as 1.34"),
    "Vultr": (re.compile(r"v1\.[0-9]{1,3}\.[0-9]{1,4}\+[0-9]+"), "the exact version such as v1.36.1+3"),
    "Civo": (re.compile(r"1\.[0-9]{1,3}\.[0-9]{1,4}-k3s[0-9]+"), "the exact version such as 1.34.1-k3s1"),
}


def not_kubernetes_version(source: str) -> Callable[[str], str | None]:
    """The check of a Kubernetes version in the form that `source` takes."""
    pattern, form = _KUBERNETES[source]

    def check(text: str) -> str | None:
        return None if pattern.fullmatch(text) else f"{source} takes {form}, and not {shown(text)}"

    return check
