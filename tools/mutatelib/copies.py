"""Copies of the checkout in which mutants are made; the checkout itself is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutatelib.mutant import PACKAGE, REPOSITORY
from mutatelib.runs import PytestRunner, RunOutcome

_MODEL_WALKS = "300"
"""Interleavings of the models that a mutant is tried with; the suite runs more."""


class Copy:
    """A copy of the checkout, with what is not committed, in a temporary folder of its own.

    Args:
        stack_dir: Folder of the running servers, for tests that need them.
        airflow: Whether the tests import Airflow.
    """

    def __init__(self, stack_dir: Path, airflow: bool = False) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="mysql-cdc-mutate-"))
        self.root = self._home / "checkout"
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
        compile_by_hash(self.root / PACKAGE)
        env = dict(os.environ)
        env |= {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MYSQL_CDC_STACK_DIR": str(stack_dir),
        }
        env.setdefault("MODEL_WALKS", _MODEL_WALKS)
        self._runs = PytestRunner(self.root, self._home, env, airflow)

    def remove(self) -> None:
        """End what runs in it, and delete it."""
        self.end()
        shutil.rmtree(self._home, ignore_errors=True)

    def test(self, tests: tuple[str, ...], *options: str, limit_s: float) -> RunOutcome:
        """Run tests in it; they find the product as its files are now.

        Args:
            tests: Tests, relative to ``tests``.
            options: Further options of pytest.
            limit_s: Seconds after which they are ended.
        """
        return self._runs.test(tests, *options, limit_s=limit_s)

    def end(self) -> None:
        """End the tests that run in it, with whatever they have started in their session, and let no others begin."""
        self._runs.end()


def compile_by_hash(folder: Path) -> None:
    """Compile what mutants are made of, so that compiled files follow their source by its hash.

    Python takes a compiled file for fresh when second and size of its source fit, but keeps this form once it is there.

    Args:
        folder: The package.
    """
    mode = ("--invalidation-mode", "checked-hash")
    subprocess.run([sys.executable, "-m", "compileall", "-q", *mode, str(folder)], check=True)
