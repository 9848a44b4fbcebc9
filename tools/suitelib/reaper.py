"""Run a command, and wait for whatever it leaves behind, so that the times of this process count all of that.

``python reaper.py COMMAND...`` ends with the command's exit code. SIGTERM is passed on to it, and sent to it when the
process that started this one ends. What still runs behind the command is named and killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# prctl(2): what a descendant leaves behind becomes a child of this process, which waits for it and so counts its CPU.
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1


def main(command: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    process = subprocess.Popen(command)
    # Behind SIGTERM pytest ends its servers, as behind Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process.pid, signal.SIGTERM))
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == process.pid:
            _kill_rest()
            return os.waitstatus_to_exitcode(status)


def _kill_rest() -> None:
    """Kill what the command has left running; the children of each become this process's, so none is missed."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in pids:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if command:  # else it has ended already
                    print(f"still running behind the tests, killed: {command[:300].decode(errors='replace')}")
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
