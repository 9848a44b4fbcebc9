"""Copies of the checkout in which mutants are made; the checkout itself is never changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mutatelib.mutant import PACKAGE, REPOSITORY

_MODEL_WALKS = "300"
"""Interleavings of the models that a mutant is tried with; the suite walks more."""


class Copy:
    """A copy of the checkout, with what is not committed, in a temporary folder of its own.

    Args:
        stack_dir: Folder of the running servers, for tests that need them.
    """

    def __init__(self, stack_dir: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mysql-cdc-mutate-"))
        self._stack_dir = stack_dir
        self._child: subprocess.Popen[str] | None = None
        self._ended = False
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, self.root / name)
        (self.root / ".venv").symlink_to(REPOSITORY / ".venv")
        # Python takes a compiled file for fresh when second and size fit; these carry their source's hash.
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(self.root / PACKAGE)],
            check=True,
        )

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.root, ignore_errors=True)

    def test(self, tests: tuple[str, ...], *options: str, limit_s: float) -> tuple[int, str]:
        """Run tests in it; return pytest's exit code (124 when they took too long) and its output.

        Args:
            tests: Tests, relative to ``tests``.
            options: Further options of pytest.
            limit_s: Seconds after which they are ended.
        """
        env = dict(os.environ)
        env |= {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MYSQL_CDC_STACK_DIR": str(self._stack_dir),
        }
        env.setdefault("MODEL_WALKS", _MODEL_WALKS)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *options]
        with subprocess.Popen(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as child:
            self._child = child
            if self._ended:
                self.end()
            try:
                output, _ = child.communicate(timeout=limit_s)
                return child.returncode, output
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                return 124, child.communicate()[0]

    def end(self) -> None:
        """End the tests that run in it, with whatever they have started in their session, and let no others begin."""
        self._ended = True
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
