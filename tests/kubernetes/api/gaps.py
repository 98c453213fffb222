"""Where the embedded lab is known to differ from Kubernetes: the test, and why it is left so. `docs/lab.md` lists them."""

from __future__ import annotations

GAPS: dict[str, str] = {}
