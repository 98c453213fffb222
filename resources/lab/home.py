"""The files of a lab's home that its daemon and its clients agree on."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

PORT_FILE, TOKEN_FILE, PID_FILE, LOG_FILE = "lab.port", "lab.token", "lab.pid", "lab.log"


def read_token(home: Path) -> str:
    """The control endpoints' token, made on first use in a file that only its owner reads."""
    path = home / TOKEN_FILE
    home.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as out:
            out.write(secrets.token_urlsafe(24))
    return path.read_text()


def locked_pidfile(home: Path) -> int | None:
    """The descriptor that holds the daemon's lock; None where another daemon of this home runs."""
    fd = os.open(home / PID_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


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
