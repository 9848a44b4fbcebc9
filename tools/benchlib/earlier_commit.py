"""The files of an earlier commit of this provider, and a process that works with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from stacklib.errors import StackError
from stacklib.unpack import unpack_tar

COMMIT = "d52656a"
"""The last commit before there was a kernel: the side without one must not be dearer."""
NAME = f"this provider at {COMMIT}"
_ROOT = Path(__file__).resolve().parents[2]


def export_commit(folder: Path) -> Path:
    """Write the files of the earlier commit into a folder.

    Args:
        folder: The folder; it may be there from another workload.

    Raises:
        StackError: The clone does not reach back to that commit.
    """
    if folder.exists():
        return folder
    done = subprocess.run(["git", "-C", str(_ROOT), "archive", COMMIT], capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise StackError(f"reading commit {COMMIT}", why, "use a clone with the whole history (git fetch --unshallow)")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        unpack_tar(archive, folder)
    return folder


class Worker:
    """Plan, run and settle jobs in a process that works with those files (``earlier_worker``).

    Args:
        files: The files.
        folder: A folder of its own.
        kind: ``drain`` or ``snapshot``.
        properties: The connector's properties.
    """

    def __init__(self, files: Path, folder: Path, kind: str, properties: Mapping[str, str]) -> None:
        paths = (files, files / "tests", _ROOT / "tools")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchlib.earlier_worker", str(files)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ask({"kind": kind, "properties": dict(properties)})

    def run(self, cores: int) -> dict[str, Any]:
        """Run a job and end the process; return counts by topic and what the job used.

        Args:
            cores: Spark's ``local[N]``.

        Raises:
            RuntimeError: The process has ended; what it has printed says why.
        """
        answer = self._ask({"cores": cores})
        self._process.communicate()
        return answer

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{NAME} ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
