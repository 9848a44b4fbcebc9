"""Make mutants one by one and look whether their tests go red."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mutatelib.copies import Copy
from mutatelib.mutant import Mutant

Verdict = Literal["killed", "survived", "no longer applies", "not testable"]
QUICK_S, SERVER_S = 300.0, 900.0
"""Longest run of a mutant's tests in seconds; what takes longer hangs, and a test that hangs is red."""
_RED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """Say what became of a mutant.

    Args:
        mutant: The mutant.
        verdict: ``killed`` when a test went red, ``not testable`` when its tests could not be run at all.
        seconds: How long it took.
        why: The test that went red, or the end of the output.
    """

    mutant: Mutant
    verdict: Verdict
    seconds: float
    why: str = ""


def try_mutant(copy: Copy, mutant: Mutant) -> Result:
    """Make a mutant in a copy, run its tests, and take it back.

    Args:
        copy: The copy; nobody else uses it meanwhile.
        mutant: The mutant.
    """
    began = time.monotonic()
    path = copy.root / mutant.path
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    changed = mutant.applied(text)
    if changed is None:
        return Result(mutant, "no longer applies", 0.0, f"{mutant.path} holds the text {text.count(mutant.out)} times")
    path.write_text(changed, encoding="utf-8")
    try:
        limit_s = QUICK_S if mutant.quick else SERVER_S
        code, output = copy.test(mutant.tests, "-x", f"--timeout={limit_s / 2:.0f}", limit_s=limit_s)
    finally:
        path.write_text(text, encoding="utf-8")
    red = _RED.search(output)
    verdict, why = _verdict(code), red[1] if red else ""
    if verdict == "not testable":
        why = f"pytest ended with {code}: " + " / ".join(output.strip().splitlines()[-4:])
    return Result(mutant, verdict, time.monotonic() - began, why or ("took too long" if code == 124 else ""))


def _verdict(code: int) -> Verdict:
    """Return what pytest's exit code means: 1 stands for red tests, 2 to 5 for tests that were not run."""
    return {0: "survived", 1: "killed", 124: "killed"}.get(code, "not testable")  # type: ignore[return-value]


def run_all(mutants: Sequence[Mutant], jobs: int, stack_dir: Path, told: Callable[[Result], None]) -> list[Result]:
    """Try mutants, several at once.

    Args:
        mutants: The mutants.
        jobs: How many at once, each in a copy of its own.
        stack_dir: Folder of the running servers.
        told: Called with each result.
    """
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    results: list[Result] = []
    errors: list[BaseException] = []
    copies: list[Copy] = []
    lock = threading.Lock()

    def work() -> None:
        copy = Copy(stack_dir)
        copies.append(copy)
        try:
            while not errors:
                result = try_mutant(copy, waiting.get_nowait())
                with lock:
                    results.append(result)
                    told(result)
        except queue.Empty:
            return
        except BaseException as error:
            errors.append(error)
        finally:
            copy.remove()

    threads = [threading.Thread(target=work) for _ in range(min(jobs, len(mutants)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # the user's interrupt comes here
        errors.append(error)
        for copy in copies:
            copy.end()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return results
