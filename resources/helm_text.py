"""What Helm says on stderr: its last lines without any secret, and whether they tell of a second owner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SECRET_KEY = re.compile(r"token|password|passwd|secret|key-data|certificate-data|credential", re.IGNORECASE)
_OBJECT = re.compile(r"object (\S+) (\S+), Kind=(\w+)")
_OWNER = re.compile(r'conflicts? with "([^"]+)"(?: using [^\s:]+)?(?:: ?([^\n]*))?')
_FIELD = re.compile(r"^\s*-? ?(\.[A-Za-z][^\s]*)\s*$", re.MULTILINE)
_FOREIGN = re.compile(r"(\w+) \"([^\"]+)\" in namespace \"([^\"]*)\" exists and cannot be imported")
_LINES = 6
# A shorter value ("true", "nvidia", "8080") hides nothing and would tear holes in every sentence.
_WORTH_HIDING = 8


def secrets_in(tree: object, *, every_value: bool) -> frozenset[str]:
    """The texts that no message may hold: values under telling keys, and with `every_value` every long string leaf."""
    return frozenset(
        line for text in _leaves(tree, every_value=every_value) for line in text.splitlines() if line.strip()
    )


def _leaves(tree: object, *, every_value: bool, telling: bool = False) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, every_value=every_value, telling=telling or bool(_SECRET_KEY.search(str(key))))
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value, every_value=every_value, telling=telling)
    elif isinstance(tree, str) and (telling or (every_value and len(tree) >= _WORTH_HIDING)):
        yield tree.strip()


def own_words(text: str, status: int) -> str:
    """Of a stderr that a credential plugin wrote to as well: helm's last "Error:" and what follows it, for helm ends with
    it. Empty for a helm that a signal ended, which said nothing at the end."""
    if status < 0:
        return ""
    start = max(text.rfind("\nError: ") + 1, 0) if "\nError: " in text else text.find("Error: ")
    return text[start:] if start >= 0 and text[start:].startswith("Error: ") else ""


def last_lines(text: str, hidden: frozenset[str]) -> str:
    """Helm's last words with every hidden text replaced; empty when it said nothing."""
    lines = [line for line in text.splitlines() if line.strip() and not _noise(line)]
    said = "\n".join(lines[-_LINES:])
    for secret in sorted(hidden, key=len, reverse=True):
        said = said.replace(secret, "(hidden)")
    return said.strip()


def _noise(line: str) -> bool:
    return line.startswith(("level=", "time=", "W", "I")) and (
        "level=" in line or re.match(r"[WI]\d{4} ", line) is not None
    )


def owners_in(said: str) -> tuple[str, ...]:
    """The field managers that a conflict names; empty where it isn't about fields."""
    return tuple(sorted({found.group(1) for found in _OWNER.finditer(said)}))


def conflict_in(said: str) -> str:
    """One sentence that names the object, the other owner and the fields; empty when no second owner is told of."""
    foreign = _FOREIGN.search(said)
    if foreign:
        kind, name, namespace = foreign.groups()
        return f"{kind} {f'{namespace}/' if namespace else ''}{name} exists and belongs to no release of ours."
    owners: dict[str, list[str]] = {}
    for found in _OWNER.finditer(said):
        fields = (
            [(found.group(2) or "").strip()] if (found.group(2) or "").strip().startswith(".") else _FIELD.findall(said)
        )
        owners.setdefault(found.group(1), []).extend(f for f in fields if f)
    if not owners:
        return ""
    found_object = _OBJECT.search(said)
    what = f"{found_object.group(3)} {found_object.group(1)}" if found_object else "an object"
    return f"{what}: " + "; ".join(
        f"{who} owns {', '.join(dict.fromkeys(f)) or 'a field'}" for who, f in sorted(owners.items())
    )
