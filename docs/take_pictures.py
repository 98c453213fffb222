"""Takes the pictures in `docs/pictures` again: Dagster's own pages of a small fleet on the lab, in headless Chromium.

    python -m docs.take_pictures [NAME ...]

It needs Chromium and its driver (Debian: `apt-get install chromium chromium-driver`) and takes about three minutes. It
reconciles one cluster of the demo fleet in a temporary home, serves it with one refused cluster, and stops all it started.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from tests.definitions.server import ROOT, dagster_dev

PICTURES = Path(__file__).with_name("pictures")
CLUSTER, POOL = "metal-dallas", "mi325x"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
LIMIT = 400_000


@dataclass(frozen=True, slots=True)
class Shot:
    """`waits_for` are texts that the page must show; `clicks` are the titles of buttons pressed before the picture."""

    name: str
    path: str
    waits_for: tuple[str, ...]
    size: tuple[int, int] = (1500, 1000)
    clicks: tuple[str, ...] = ()


def _asset(cluster: str, leaf: str, view: str = "overview") -> str:
    return f"/assets/cluster/{cluster}/{leaf}?view={view}"


SHOTS = (
    Shot("devices", _asset(CLUSTER, f"devices_{POOL}"), (f"devices_{POOL}", "servedBy"), (1500, 1500)),
    Shot(
        "refused",
        _asset("amd-on-aks", "claimed_drivers", "checks") + "&checkDetail=supported_devices",
        ("supported_devices", "UnsupportedDevices"),
        (1700, 1000),
    ),
    # Tall enough for Dagster to draw the nodes whole: drawn smaller, it cuts their titles. The browser stays without its
    # navigation afterwards, so this is the last one.
    Shot(
        "lineage",
        _asset(CLUSTER, "schedulable_pools", "lineage") + "&lineageScope=upstream",
        ("schedulable_pools",),
        (3000, 2500),
        ("Hide navigation", "All"),
    ),
)
_CLICK = """
const found = [...document.querySelectorAll('button')].find(b => b.innerText.trim() === arguments[0]);
if (found) found.click();
return !!found;
"""
# A double click beside the nodes fits Dagster's graph to the view.
_FIT = """
const at = {clientX: innerWidth - 60, clientY: innerHeight / 2, bubbles: true, cancelable: true, view: window};
document.elementFromPoint(at.clientX, at.clientY).dispatchEvent(new MouseEvent('dblclick', at));
"""


class Browser:
    """Chromium by the WebDriver protocol, which is JSON over HTTP."""

    def __init__(self, driver: str) -> None:
        self._http = httpx.Client(base_url=driver, timeout=120)
        options = {"binary": shutil.which("chromium"), "args": list(FLAGS)}
        asked = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self._session = self._send("POST", "/session", asked)["sessionId"]

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.request(method, path, json=body if method == "POST" else None)
        answer.raise_for_status()
        return answer.json()["value"]

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        return self._send(method, f"/session/{self._session}{path}", body)

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - JSON
        return self.send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def open(self, address: str, size: tuple[int, int]) -> None:
        self.send("POST", "/window/rect", {"width": size[0], "height": size[1]})
        self.send("POST", "/url", {"url": address})

    def wait_for(self, texts: tuple[str, ...], *, timeout: float = 90.0) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            shown = self.run("return document.body ? document.body.innerText : ''")
            if all(t in shown for t in texts):
                return
            time.sleep(0.5)
        msg = f"the page doesn't show {texts}: {self.run('return document.body.innerText')[:1500]}"
        raise AssertionError(msg)

    def click(self, title: str) -> None:
        if not self.run(_CLICK, title):
            msg = f"the page has no button {title}"
            raise AssertionError(msg)

    def picture(self) -> bytes:
        return base64.b64decode(self.send("GET", "/screenshot"))

    def close(self) -> None:
        self.send("DELETE", "")
        self._http.close()


@contextmanager
def browser() -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(100):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/status", timeout=2).json()["value"]["ready"]:
                    break
            except (httpx.HTTPError, ValueError):
                time.sleep(0.2)
        page = Browser(f"http://127.0.0.1:{port}")
        try:
            yield page
        finally:
            page.close()
    finally:
        driver.terminate()
        driver.wait(20)


def small(data: bytes) -> bytes:
    """The picture in 128 colours: the pages are flat, and Chromium's own encoding takes three times the space."""
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(128).save(out, "PNG", optimize=True)
    return out.getvalue()


def take(page: Browser, address: str, shot: Shot) -> None:
    page.open(f"{address}{shot.path}", shot.size)
    page.wait_for(shot.waits_for)
    if shot.clicks:
        # Its first drawing must be done.
        time.sleep(10)
    for title in shot.clicks:
        page.click(title)
        time.sleep(3)
    if shot.clicks:
        page.run(_FIT)
    # The fit is an animation, slow without a GPU.
    time.sleep(45 if shot.clicks else 8)
    data = small(page.picture())
    if len(data) > LIMIT:
        msg = f"{shot.name} has {len(data)} bytes, and at most {LIMIT} are kept in the tree"
        raise AssertionError(msg)
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{shot.name}.png").write_bytes(data)
    sys.stdout.write(f"{shot.name}.png {len(data) // 1000} kB\n")


def prepare(home: Path) -> Path:
    """The fleet of the pictures, reconciled in `home` as far as it goes: one cluster is refused."""
    fleet = home / "fleet"
    fleet.mkdir(parents=True)
    for file in (*(ROOT / "fleet" / "classes").glob("metal-*.yaml"), ROOT / "fleet" / "clusters" / f"{CLUSTER}.yaml"):
        shutil.copy(file, fleet)
    shutil.copytree(ROOT / "recipes" / "qwen2.5-0.5b-mi325x", fleet / "recipe")
    shutil.copy(ROOT / "examples" / "refused" / "unsupported-devices.yaml", fleet)
    return fleet


def reconcile(home: Path, fleet: Path) -> None:
    environment = {**os.environ, "MODELPLANE_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    command = [sys.executable, "-m", "modelplane_dagster", "reconcile", str(fleet), "--timeout", "240s"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    # 3: something is refused, which is one of the pictures.
    if ran.returncode != 3:
        raise SystemExit(ran.returncode or 1)


def main(names: list[str]) -> None:
    chosen = [s for s in SHOTS if not names or s.name in names]
    with tempfile.TemporaryDirectory(prefix="pictures") as folder:
        home = Path(folder)
        fleet = prepare(home)
        reconcile(home, fleet)
        with dagster_dev(home, {"MODELPLANE_FLEET": str(fleet)}) as server, browser() as page:
            httpx.post(f"{server.address}/graphql", json={"query": "mutation { setNuxSeen }"}, timeout=30)
            for shot in chosen:
                take(page, server.address, shot)


if __name__ == "__main__":
    main(sys.argv[1:])
