"""Make mutants one by one and look whether their tests go red."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from mutatelib.copies import Copy
from mutatelib.mutant import Mutant
from mutatelib.runs import RunOutcome
from mutatelib.verdicts import Result, failure_line, judge

QUICK_S, SERVER_S = 200.0, 900.0
"""Longest run of a mutant's tests in seconds, on a machine that does little else; what takes longer hangs."""
_TOGETHER = 60
"""Tests that one control runs."""


def try_mutant(copy: Copy, mutant: Mutant, killer: str = "", time_factor: float = 1.0) -> Result:
    """Make a mutant in a copy, run its tests, and take it back.

    Args:
        copy: The copy; nobody else uses it meanwhile.
        mutant: The mutant.
        killer: The test that killed it the last time; it is tried before all others.
        time_factor: Factor of the longest times.
    """
    began = time.monotonic()
    path = copy.root / mutant.path
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    changed = mutant.applied(text)
    if changed is None:
        why = f"{mutant.path} holds the text {text.count(mutant.out)} times"
        return Result(mutant, "no longer applies", why=why)
    path.write_text(changed, encoding="utf-8")
    cpu_s = 0.0
    try:
        for tests in filter(None, ((killer,) if killer else (), mutant.tests)):
            ended = _run(copy, mutant, tests, time_factor)
            cpu_s += ended.cpu_s
            verdict, node, why = judge(mutant, ended)
            if verdict == "killed":
                break
    finally:
        path.write_text(text, encoding="utf-8")
    return Result(mutant, verdict, time.monotonic() - began, cpu_s, node, why)


def _run(copy: Copy, mutant: Mutant, tests: tuple[str, ...], time_factor: float) -> RunOutcome:
    limit_s = time_factor * (QUICK_S if mutant.quick else SERVER_S)
    return copy.test(tests, "-x", f"--timeout={limit_s / 2:.0f}", limit_s=limit_s)


def check_controls(copy: Copy, results: Sequence[Result], time_factor: float = 1.0) -> Iterable[Result]:
    """Run the tests that went red on the unchanged text, and yield each result with what that says about it.

    Args:
        copy: The copy; nobody else uses it meanwhile.
        results: Results of killed mutants.
        time_factor: Factor of the longest times.
    """
    targets = {r.mutant.name: (r.killer,) if r.killer else r.mutant.tests for r in results}
    nodes = list(dict.fromkeys(node for target in targets.values() for node in target))
    red: dict[str, str] = {}
    for start in range(0, len(nodes), _TOGETHER):
        together = nodes[start : start + _TOGETHER]
        limit_s = time_factor * SERVER_S * 4
        ended = copy.test(tuple(together), f"--timeout={time_factor * SERVER_S / 2:.0f}", limit_s=limit_s)
        red |= {r.node.removeprefix("tests/"): failure_line(r) for r in ended.reds}
        if not ended.reds and ended.code:
            red |= dict.fromkeys(together, f"pytest ended with {ended.code}: {ended.output[-300:]}")
    for result in results:
        why = [outcome for node in targets[result.mutant.name] for name, outcome in red.items() if _covers(node, name)]
        if why:
            yield replace(result, verdict="red without it", why=why[0])
        else:
            yield replace(result, controlled=True)


def _covers(node: str, name: str) -> bool:
    return name == node or name.startswith((f"{node}::", f"{node}["))


def run_all(
    mutants: Sequence[Mutant],
    jobs: int,
    stack_dir: Path,
    report: Callable[[Result], None],
    attempt: Callable[[Copy, Mutant], Result] = try_mutant,
) -> None:
    """Try mutants, several at once.

    Args:
        mutants: The mutants.
        jobs: How many at once, each in a copy of its own.
        stack_dir: Folder of the running servers.
        report: Called with each result, by one thread at a time.
        attempt: Tries one.
    """
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    airflow = any(not m.quick for m in mutants)
    errors: list[BaseException] = []
    copies: list[Copy] = []
    lock = threading.Lock()

    def work() -> None:
        try:
            copy = Copy(stack_dir, airflow)
            copies.append(copy)
            try:
                while not errors:
                    result = attempt(copy, waiting.get_nowait())
                    with lock:
                        report(result)
            finally:
                copy.remove()
        except queue.Empty:
            return
        except BaseException as error:
            errors.append(error)

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        # Nobody joins threads here: Python 3.11 takes one for ended when an interrupt meets its join().
        try:
            wait([pool.submit(work) for _ in range(min(jobs, len(mutants)))])
        except BaseException as error:  # the user's interrupt comes here
            errors.append(error)
            for copy in copies:
                copy.end()
    if errors:
        raise errors[0]
