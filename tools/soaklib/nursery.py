"""Where driver processes come from: everything is imported once, and each driver is a fork with a session of its own.

Importing takes longer than most attempts; a machine under load would do little else. The nursery has no threads and no
connections, so a fork of it is as good as a new process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from demolib import family


class ForkServer:
    """Start drivers.

    Args:
        env: Environment of the nursery and of every driver.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "soaklib.nursery"],
            env=dict(env),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def driver(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> family.Process:
        """Start a driver."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), dict(env), str(log)]) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        # A driver that has ended already counts as one that is gone.
        return family.started(pid) or family.Process(pid, -1)

    def close(self) -> None:
        """End the nursery; drivers stay."""
        self._process.kill()
        self._process.communicate()


def serve() -> None:
    """Fork a driver for each line of standard input, and answer with its process id."""
    from soaklib import driver

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no parent waits for drivers: none stays a zombie
    for line in sys.stdin:
        arguments, env, log = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _detach(env, log)
            code = 1
            try:
                code = driver.main(arguments)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)


def _detach(env: Mapping[str, str], log: str) -> None:
    """Make a fork of the nursery a process of its own."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    serve()
