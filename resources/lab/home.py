"""The files of a lab's home that its daemon and its clients agree on."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

PORT_FILE, TOKEN_FILE, PID_FILE, LOG_FILE = "lab.port", "lab.token", "lab.pid", "lab.log"
KIND_FILE = "lab.kind"
# How a daemon ends that didn't start. Python's own status after a traceback is 1.
RUNS_ALREADY, UNUSABLE = 75, 78
_TRIES, _PAUSE = 20, 0.01


def read_token(home: Path) -> str:
    """The control endpoints' token, made on first use in a file that only its owner reads."""
    path = home / TOKEN_FILE
    home.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Written whole and then linked, so that nobody reads half a token and the first one wins.
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(24))
        with suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
    return path.read_text()


def locked_pidfile(home: Path) -> int | None:
    """The descriptor that holds the daemon's lock; None where another daemon of this home runs."""
    fd = os.open(home / PID_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    # A client's look at the lock holds it for an instant: try again before giving up.
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return fd
    os.close(fd)
    return None


def running(home: Path) -> int | None:
    """The daemon's process id, 0 where it is only starting; None where no daemon holds the home's lock."""
    try:
        fd = os.open(home / PID_FILE, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).decode().strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)
    return None
