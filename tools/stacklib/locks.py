"""Locks between concurrent runs, and folders that exist only when they are complete."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stacklib.errors import StackError, say


@contextmanager
def exclusive(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` and say so when another run holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("lock", f"waiting for another run that is {waiting_for}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def build_once(target: Path, build: Callable[[Path], None], subject: str, what: str, verb: str = "fetching") -> Path:
    """Return ``target``, building it first when it is not there.

    The folder is built under a temporary name and renamed when it is complete, so a folder of that name is never a
    half-finished one; leftovers of interrupted builds are removed.

    Args:
        target: folder inside the cache.
        build: fills the (existing, empty) temporary folder it is given.
        subject: part of the stack, for progress lines.
        what: what is being built, for progress lines.
        verb: what is done to it, for progress lines.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(target.parent / f".{target.name}.lock", f"{verb} {what}"):
            if target.is_dir():
                return target
            temporary = target.parent / f".{target.name}.partial"
            if temporary.exists():
                say(subject, f"removing a half-finished {what}")
                shutil.rmtree(temporary)
            temporary.mkdir()
            say(subject, f"{verb} {what} (once; kept in {target.parent})")
            build(temporary)
            temporary.rename(target)
            say(subject, f"{what} ready")
    except OSError as error:
        raise StackError(
            f"keeping {what} in {target.parent}",
            str(error),
            "make room or rights there, or name another folder in MYSQL_CDC_CACHE",
        ) from error
    return target
