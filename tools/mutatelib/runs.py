"""Run tests in forked children of a process that waits (``warm.py``), and say how they ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PYTEST = ("-q", "-p", "no:cacheprovider", "--tb=line")
_WARM = Path(__file__).with_name("warm.py")


@dataclass(frozen=True, slots=True)
class FailedTest:
    """Say how a test went red.

    Args:
        node: pytest's name of the test.
        phase: ``call``, ``setup``, ``teardown``, or ``collect`` for a file.
        error: Class of the exception.
        text: Its text.
        line: The source line that raised it.
    """

    node: str
    phase: str
    error: str
    text: str
    line: str


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Say how a run of tests ended.

    Args:
        code: pytest's exit code; None when the time was over.
        cpu_s: CPU seconds of the run, with the processes it has waited for.
        output: What it printed.
        reds: Tests that went red, in their order.
    """

    code: int | None
    cpu_s: float
    output: str
    reds: tuple[FailedTest, ...] = ()


class PytestRunner:
    """Run tests of a checkout, one run at a time; a run finds the files as they are when it begins.

    Args:
        root: The checkout.
        home: A folder for what passes between the processes.
        env: The environment.
        airflow: Whether the tests import Airflow.
    """

    def __init__(self, root: Path, home: Path, env: Mapping[str, str], airflow: bool = False) -> None:
        self._root, self._home, self._env = root, home, dict(env)
        self._options = ["airflow"] * airflow
        self._warm: subprocess.Popen[str] | None = None
        self._ended = False

    def test(self, tests: tuple[str, ...], *options: str, limit_s: float) -> RunOutcome:
        """Run tests in a process of their own.

        Args:
            tests: Tests, relative to ``tests``.
            options: Further options of pytest.
            limit_s: Seconds after which they are ended.

        Raises:
            RuntimeError: They were ended before their time, or the process that starts them has ended by itself; its
                own words are on stderr.
        """
        output, failures_seen = self._home / "output", self._home / "reds"
        failures_seen.unlink(missing_ok=True)
        request = {
            "arguments": [*_PYTEST, *options, *(f"tests/{test}" for test in tests)],
            "limit_s": limit_s,
            "output": str(output),
            "reds": str(failures_seen),
        }
        answer = self._ask(json.dumps(request))
        if not answer or self._ended:
            raise RuntimeError("tools/mutatelib/warm.py has ended")
        text = output.read_text(encoding="utf-8", errors="replace")
        lines = failures_seen.read_text(encoding="utf-8").splitlines() if failures_seen.exists() else []
        return RunOutcome(
            **json.loads(answer), output=text, reds=tuple(FailedTest(**json.loads(line)) for line in lines)
        )

    def _ask(self, request: str) -> str:
        if self._ended:
            return ""
        if self._warm is None:
            self._warm = self._started()
        assert self._warm.stdin is not None and self._warm.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(request, file=self._warm.stdin, flush=True)
        return self._warm.stdout.readline()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(_WARM), *self._options],
            cwd=self._root,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the tests that run, with whatever they have started in their session, and let no others begin."""
        self._ended = True
        if self._warm is not None and self._warm.stdin is not None and not self._warm.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._warm.stdin.close()
            self._warm.wait()
