"""Make mutants one by one in a copy of the checkout, and see whether their tests fail."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import Literal

from mutatelib.mutant import PACKAGE, REPOSITORY, Mutant

QUICK_S, SERVER_S = 300.0, 900.0
"""Longest run of a mutant's test in seconds; one that takes longer hangs."""
Verdict = Literal["killed", "survived", "does not apply", "not judged"]
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line")
_TIMEOUT = "from pytest-timeout"
_serial = itertools.count(1)
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@contextlib.contextmanager
def copied_checkout() -> Iterator[Path]:
    """Yield a copy of the checkout, with what is not committed; mutants are made there."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, text=True
    )
    with TemporaryDirectory(prefix="mysql-cdc-mutate-") as home:
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():
                (Path(home) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, Path(home) / name)
        (Path(home) / ".venv").symlink_to(REPOSITORY / ".venv")
        yield Path(home)


def try_mutant(root: Path, mutant: Mutant, limit_s: float | None = None) -> tuple[Verdict, str]:
    """Make a mutant, run its test, and take it back; return the verdict and what led to it.

    Args:
        root: The copy; nobody else uses it meanwhile.
        mutant: The mutant.
        limit_s: Seconds for its test; None for those of its kind.
    """
    try:
        changed = mutant.changed(root)
    except ValueError as error:
        return "does not apply", str(error)
    path = root / PACKAGE / mutant.file
    text = path.read_text(encoding="utf-8")
    try:
        _write(path, changed)
        return judge(*run_tests(root, [mutant.test], limit_s or (QUICK_S if mutant.quick else SERVER_S), "-x"))
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Python takes a compiled file for fresh when second and size of its source fit.
    os.utime(path, (next(_serial), next(_serial)))


def judge(code: int | None, output: str) -> tuple[Verdict, str]:
    """Return the verdict on a mutant, and what led to it.

    Args:
        code: From ``run_tests``.
        output: From ``run_tests``.
    """
    lines = output.splitlines()
    if code == 0:
        return "survived", lines[-1]
    failed = next((line for line in lines if line.startswith(("FAILED ", "ERROR "))), "")
    # Load brings timeouts about as well.
    if code == 1 and failed and _TIMEOUT not in output:
        return "killed", failed
    return "not judged", f"pytest ended with {code}: {' / '.join(lines[-4:])}"


def run_tests(
    root: Path, tests: Sequence[str], limit_s: float, *options: str, environment: Mapping[str, str] = NO_VARIABLES
) -> tuple[int | None, str]:
    """Return pytest's exit code, None when the time was over, and what it printed.

    Args:
        root: The checkout.
        tests: Tests, relative to ``tests``.
        limit_s: Seconds after which they are ended with whatever they have started in their session.
        options: Further options of pytest.
        environment: Further variables of its environment.
    """
    stack_dir = os.environ.get("MYSQL_CDC_STACK_DIR", str(REPOSITORY / ".stack"))
    with TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, *_PYTEST, f"--timeout={limit_s / 2:.0f}", *options, *(f"tests/{test}" for test in tests)],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "MYSQL_CDC_STACK_DIR": stack_dir, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read()
