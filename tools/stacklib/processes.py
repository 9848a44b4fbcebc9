"""Server processes that outlive the script: start, recognise, wait for, end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stacklib.errors import StackError, say

TAIL_LINES = 15

# Set when the run is interrupted: a wait for a server stops and ends it.
interrupted = threading.Event()


@dataclass(frozen=True, slots=True)
class Identity:
    """A process as it was started: its id, its kernel start time in clock ticks, and a text of its command line."""

    pid: int
    started: int
    marker: str


@dataclass(frozen=True, slots=True)
class Started:
    """A server just started: its process, its log, and how long that log was before, in bytes."""

    process: subprocess.Popen[bytes]
    log: Path
    since: int


def _start_time(pid: int) -> int | None:
    """Return the start time of a living process in clock ticks since boot (proc(5), stat field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The second field is the program name in parentheses and may hold anything, spaces and parentheses too.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def alive(identity: Identity | None) -> bool:
    """Return whether the process that was started is still the one that runs under its id."""
    if identity is None or _start_time(identity.pid) != identity.started:
        return False
    return os.fsencode(identity.marker) in _command(identity.pid)


def _command(pid: int) -> bytes:
    """Return a process's command line, its words apart by zero bytes; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def load(path: Path) -> Identity | None:
    """Read a process record; a missing or damaged one counts as none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Identity(pid=int(raw["pid"]), started=int(raw["started"]), marker=str(raw["marker"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.replace(path)


def spawn(
    command: Sequence[str], record: Path, log: Path, marker: str, env: Mapping[str, str] | None = None
) -> Started:
    """Start a server in a session of its own with its output appended to ``log``, and record who it is."""
    since = size(log)
    with log.open("ab") as stream:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=record.parent,
            start_new_session=True,
        )
    # Linux lets the parent go on before the new program's command line can be read.
    limit = time.monotonic() + 5
    while not _command(process.pid) and _start_time(process.pid) is not None and time.monotonic() < limit:
        time.sleep(0.001)
    started = _start_time(process.pid)
    write_private(record, json.dumps(asdict(Identity(process.pid, started or 0, marker))))
    return Started(process, log, since)


def size(log: Path) -> int:
    """Return the length of a log in bytes, 0 when there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def tail(log: Path, since: int = 0, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented, without what is before the byte offset ``since``."""
    try:
        with log.open("rb") as raw:
            raw.seek(since)
            stream = raw.read().decode("utf-8", "replace").splitlines()
            return "".join(f"    {line.rstrip()}\n" for line in deque(stream, maxlen=lines))
    except OSError:
        return ""


def wait_ready(subject: str, server: Started, ready: Callable[[], bool], seconds: float) -> None:
    """Wait until a server answers.

    Raises:
        StackError: it ended, or did not answer in time; the end of its log is in the detail.
    """
    begun = time.monotonic()
    last_report = begun
    while not ready():
        code = server.process.poll()
        if code is not None:
            raise StackError(
                f"starting {subject}",
                f"the server ended with code {code}",
                f"see {server.log}; its last lines:",
                tail(server.log, server.since),
            )
        if interrupted.is_set():
            raise StackError(f"starting {subject}", "the run was interrupted", "run it again")
        now = time.monotonic()
        if now - begun > seconds:
            raise StackError(
                f"starting {subject}",
                f"no answer within {seconds:.0f} s",
                f"see {server.log}; its last lines:",
                tail(server.log, server.since),
            )
        if now - last_report > 5:
            say(subject, f"waiting for the server to answer ({now - begun:.0f} s)")
            last_report = now
        time.sleep(0.05)


def stop(subject: str, record: Path, seconds: float = 30.0) -> bool:
    """End the recorded process if it is still the same one; return whether one was ended.

    A record whose process is gone, or whose id now belongs to another program, is removed and nothing is signalled.

    Args:
        subject: its name, for messages.
        record: the process record.
        seconds: how long it may take to end by itself; 0 kills it.
    """
    identity = load(record)
    if identity is None or not alive(identity):
        if record.exists():
            say(subject, "is not running any more")
            record.unlink()
        return False
    say(subject, f"stopping (process {identity.pid})")
    terminated = ((signal.SIGTERM, seconds),) if seconds else ()
    for number, grace_s in (*terminated, (signal.SIGKILL, 10.0)):
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            break
        except PermissionError as error:
            raise StackError(
                f"stopping {subject}", f"process {identity.pid} belongs to another user", "stop it as that user"
            ) from error
        limit = time.monotonic() + grace_s
        while alive(identity) and time.monotonic() < limit:
            time.sleep(0.05)
        if not alive(identity):
            break
        say(subject, f"still there after {grace_s:.0f} s")
    record.unlink(missing_ok=True)
    return True
