"""What became of a mutant: the verdict on a run of its tests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from mutatelib.mutant import Mutant
from mutatelib.runs import FailedTest, RunOutcome

Verdict = Literal[
    "killed", "survived", "took too long", "errored", "not testable", "no longer applies", "red without it"
]
_LATE_ERRORS = frozenset({"TimeoutError", "TimeoutExpired", "Timeout"})
_BY_PLUGIN = re.compile(r"Timeout \(>[\d.]+s\) from pytest-timeout")
_WAITED = re.compile(r"\bmonotonic\(\)|\bdeadline\b")
"""A test's own wait asserts that its time is not over."""


@dataclass(frozen=True, slots=True)
class Result:
    """Say what became of a mutant.

    Args:
        mutant: The mutant.
        verdict: ``killed`` when a test went red by what it looks at. A timeout and an error in a fixture may be due
            to the machine as well as to the mutant: ``took too long`` and ``errored``, unless its row expects them.
            ``not testable``: its tests could not be run at all. ``red without it``: so is the test.
        seconds: How long it took.
        cpu_s: CPU seconds of it, with the processes its tests have waited for.
        killer: The test that went red, relative to ``tests``.
        why: What it said, or the end of the output.
        key: What the verdict rests on (``record.py``).
        controlled: Whether the test was seen green without the mutant.
        recorded: Whether an earlier run has found it.
    """

    mutant: Mutant
    verdict: Verdict
    seconds: float = 0.0
    cpu_s: float = 0.0
    killer: str = ""
    why: str = ""
    key: str = field(default="", compare=False)
    controlled: bool = False
    recorded: bool = False


def is_timeout(red: FailedTest) -> bool:
    """Whether a test went red because a time was over, which load brings about as well.

    Args:
        red: How it went red.
    """
    return red.error in _LATE_ERRORS or bool(_BY_PLUGIN.search(red.text)) or bool(_WAITED.search(red.line))


def failure_line(red: FailedTest) -> str:
    """Return how a test went red, in a line.

    Args:
        red: How it went red.
    """
    return " ".join(f"{red.phase}: {red.error}: {red.text[:200]}".split())


def judge(mutant: Mutant, ended: RunOutcome) -> tuple[Verdict, str, str]:
    """Return the verdict on a run of a mutant's tests, the test that decided it, and why.

    Args:
        mutant: The mutant.
        ended: How the run ended.
    """
    if ended.code == 0:
        return "survived", "", "no test went red"
    red = ended.reds[0] if ended.reds else None
    # The cleanup of a failed test may hang; the test has failed.
    if ended.code is None and (red is None or red.phase != "call"):
        return _unless_expected(mutant, "took too long", "", "the run was ended")
    if ended.code not in (1, None) or red is None:
        return "not testable", "", f"pytest ended with {ended.code}: " + " / ".join(ended.output.splitlines()[-4:])
    node, why = red.node.removeprefix("tests/"), failure_line(red)
    if is_timeout(red):
        return _unless_expected(mutant, "took too long", node, why)
    if red.phase != "call":
        return _unless_expected(mutant, "errored", node, why)
    return "killed", node, why


def _unless_expected(mutant: Mutant, verdict: Verdict, node: str, why: str) -> tuple[Verdict, str, str]:
    return ("killed" if mutant.expects == verdict else verdict), node, why
