"""Running the tools that fetch things, with one clear line when they are missing or fail."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from stacklib.errors import StackError

_NETWORK_SIGNS = (
    "could not resolve",
    "temporary failure resolving",
    "name or service not known",
    "unknownhost",
    "unknown host",
    "connection refused",
    "network is unreachable",
    "no route to host",
    "could not connect",
    "cannot initiate the connection",
    "connection timed out",
    "failed to fetch",
    "server access error",
    "dns error",
    "newconnectionerror",
    "failed to establish a new connection",
)


def require(tool: str, purpose: str, remedy: str) -> str:
    """Return the path of a tool.

    Raises:
        StackError: it is not on PATH.
    """
    path = shutil.which(tool)
    if path is None:
        raise StackError(purpose, f"the program `{tool}` is missing", remedy)
    return path


def run(
    command: Sequence[str],
    purpose: str,
    remedy: str,
    *,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Run a tool to its end and return its output (both streams).

    Args:
        command: program and arguments.
        purpose: what it is for, for the error line.
        remedy: what to do when it fails for another reason than the network.
        env: environment, the own one when None.
        on_line: called with every line as it comes, for progress.

    Raises:
        StackError: it could not be started or ended with another code than 0.
    """
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise StackError(purpose, f"`{command[0]}` cannot be run ({error.strerror})", remedy) from error
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            if on_line is not None:
                on_line(line)
    except BaseException:
        process.kill()
        raise
    finally:
        process.stdout.close()
        code = process.wait()
    output = "".join(lines)
    if code != 0:
        raise failure(purpose, remedy, f"{command[0]} ended with code {code}", output)
    return output


def failure(purpose: str, remedy: str, why: str, output: str) -> StackError:
    """Return the error for a failed tool; signs of a missing network in its output name that as the cause."""
    lowered = output.lower()
    if any(sign in lowered for sign in _NETWORK_SIGNS):
        return StackError(
            purpose,
            "the package registry cannot be reached",
            "check network and proxy settings, then run it again",
        )
    detail = "".join(f"    {line[:300]}\n" for line in output.splitlines()[-8:])
    return StackError(purpose, why, remedy, detail)
