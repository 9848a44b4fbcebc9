"""The ``mysql`` client program: a workload is written for it (it splits statements and knows DELIMITER)."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stacklib import StackInfo
from stacklib.mysql import find_program

from prooflib.workload import ProofError

_NO_DEFAULTS = "--no-defaults"  # the client takes it only before all others
_OPTIONS = ("--force", "--comments", "-N", "--default-character-set=utf8mb4")


def _program() -> list[str]:
    """Return the client's command and first option: ``MYSQL_CLIENT_PROGRAM``, or one on PATH or of the stack."""
    configured = os.environ.get("MYSQL_CLIENT_PROGRAM")
    if configured:
        return [*shlex.split(configured), _NO_DEFAULTS]
    on_path = shutil.which("mysql")
    if on_path:
        version_text = subprocess.run([on_path, _NO_DEFAULTS, "--version"], capture_output=True, text=True, check=False)
        if version_text.returncode == 0 and "MariaDB" not in version_text.stdout:
            return [on_path, _NO_DEFAULTS]
    server = list(find_program("9.7").command)
    sibling = Path(server[-1]).parent.parent / "bin" / "mysql"
    if not sibling.is_file():
        raise ProofError("there is no mysql client; put MySQL's own on PATH or name it in MYSQL_CLIENT_PROGRAM")
    # Accounts of MySQL 5.7 have mysql_native_password, whose client part is a file since 9.0.
    return [*server[:-1], str(sibling), _NO_DEFAULTS, f"--plugin-dir={sibling.parent.parent / 'lib/mysql/plugin'}"]


@dataclass(frozen=True, slots=True)
class Client:
    """Run SQL text through the client program as the scratch server's root.

    Args:
        command: The command without the options.
        password: Root's password; it goes through the environment.
        errors: Takes each error line the server sends.
    """

    command: tuple[str, ...]
    password: str = field(repr=False)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stack: StackInfo) -> Client:
        """Return the client of a stack."""
        where = ("-h", stack.mysql_host, "-P", str(stack.mysql_port), "-u", stack.root_user)
        return cls((*_program(), *where, *_OPTIONS), stack.root_password)

    def run(self, text: str, what: str) -> list[str]:
        """Run a text in a session of its own; return the lines of its result. Statements that fail are passed over.

        Args:
            text: SQL as one would give it to the client's standard input.
            what: Name of the part, for the error lines.
        """
        session = self.open(what)
        session.feed(text)
        return session.close()

    def open(self, what: str) -> Session:
        """Begin a session to which text is fed bit by bit."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed in Session.close
        env = {**os.environ, **({"MYSQL_PWD": self.password} if self.password else {})}
        process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=env)
        return Session(what, process, out, err, self.errors)


@dataclass(slots=True)
class Session:
    """Hold one running client.

    Args:
        what: Name of the part, for the error lines.
        out: Where its result goes.
        err: Where its errors go.
        errors: Takes each error line.
    """

    what: str
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    errors: list[str]

    def feed(self, text: str) -> None:
        """Send text; the client runs each statement as soon as its line is complete."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # close() says why the client has ended
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def close(self) -> list[str]:
        """End the text, wait for the client, and return its result's lines.

        Raises:
            ProofError: The client could not reach the server.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.out.seek(0)
        self.err.seek(0)
        with self.out, self.err:
            lines = self.out.read().decode(errors="replace").split("\n")
            errors = [e for e in self.err.read().decode(errors="replace").splitlines() if e.strip()]
        self.errors += [f"sql {self.what}: {e}" for e in errors]
        if any(e.startswith("ERROR 20") and " at line" not in e for e in errors):
            raise ProofError(f"the mysql client failed: {errors[-1]}")
        return lines
