"""The mutation run from beginning to end; what it starts it ends."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutatelib.copies import Copy
from mutatelib.mutant import REPOSITORY, ListError, Mutant, load
from mutatelib.run import Result, run_all

_STACK = str(REPOSITORY / "scripts" / "stack")
_BASELINE_S = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when every mutant was killed, 1 when one was not, 2 when the run makes no sense."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _run(options)
    except ListError as error:
        print(f"error: tests/mutants: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return 2


def _interrupted(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Take each protection of tests/mutants/*.toml out once, in a copy of the checkout, and see one of "
        "the tests it names go red. Exit code 1 when one survives, or no longer applies.",
    )
    parser.add_argument("--quick", action="store_true", help="only mutants whose tests need no server")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only mutants with TEXT in their name or file"
    )
    parser.add_argument("--row", type=int, metavar="N", help="only mutants of this row of docs/holes.md")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once, those that need servers one by one (2)")
    parser.add_argument("--no-baseline", action="store_true", help="do not first run the tests on the unchanged text")
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    return [
        m
        for m in load()
        if (m.quick or not options.quick)
        and (options.row is None or options.row in m.rows)
        and (not options.only or any(text in m.name or text in m.file for text in options.only))
    ]


def _run(options: argparse.Namespace) -> int:
    chosen = _chosen(options)
    if options.list:
        for m in chosen:
            print(f"{m.name} [{m.file}]: {m.breaks}; {m.explained or ' '.join(m.tests)}")
        return 0
    mutants = [m for m in chosen if not m.explained]
    if not mutants:
        print("no mutant is chosen", file=sys.stderr)
        return 2
    quick, slow = [m for m in mutants if m.quick], [m for m in mutants if not m.quick]
    stack_dir, started = _stack(bool(slow))
    try:
        if not options.no_baseline and not _baseline(quick, slow, stack_dir):
            return 2
        began = time.monotonic()
        progress = _Progress(len(mutants), began)
        results = run_all(quick, options.jobs, stack_dir, progress) + run_all(slow, 1, stack_dir, progress)
    finally:
        if started:
            subprocess.run([_STACK, "down"], check=False)
    return _report(results, len(chosen) - len(mutants), time.monotonic() - began)


def _stack(wanted: bool) -> tuple[Path, bool]:
    """Return the folder of the servers, started when they are wanted and do not run, and whether they were."""
    folder = Path(os.environ.get("MYSQL_CDC_STACK_DIR", REPOSITORY / ".stack"))
    if not wanted or subprocess.run([_STACK, "status"], capture_output=True, check=False).returncode == 0:
        return folder, False
    subprocess.run([_STACK, "up"], check=True)
    return folder, True


def _baseline(quick: Sequence[Mutant], slow: Sequence[Mutant], stack_dir: Path) -> bool:
    """Return whether the tests are green on the unchanged text; otherwise a red one would say nothing."""
    copy = Copy(stack_dir)
    try:
        for mutants, more in ((quick, ("-n", "2")), (slow, ())):
            tests = tuple(dict.fromkeys(test for m in mutants for test in m.tests))
            if not tests:
                continue
            print(f"running the tests on the unchanged text: {len(tests)} file(s) or test(s)", flush=True)
            code, output = copy.test(tests, *more, limit_s=_BASELINE_S)
            if code:
                print(output)
                print("error: the tests are not green without a mutant", file=sys.stderr)
                return False
    finally:
        copy.remove()
    return True


class _Progress:
    """Print a line for each result."""

    def __init__(self, total: int, began: float) -> None:
        self._total, self._began, self._done = total, began, 0

    def __call__(self, result: Result) -> None:
        self._done += 1
        passed = time.monotonic() - self._began
        left = passed / self._done * (self._total - self._done)
        head = f"[{passed:6.0f}s] {self._done}/{self._total} {result.verdict:9} {result.mutant.name}"
        print(f"{head} ({result.seconds:.0f} s; {result.why or 'no test went red'}), {left:.0f} s left", flush=True)


def _report(results: Sequence[Result], explained: int, seconds: float) -> int:
    count = Counter(r.verdict for r in results)
    alive = [r for r in results if r.verdict != "killed"]
    for r in alive:
        print(f"\n{r.verdict}: {r.mutant.name}\n  {r.mutant.path}: {r.mutant.out!r} -> {r.mutant.put!r}")
        print(f"  breaks: {r.mutant.breaks}\n  tests: {' '.join(r.mutant.tests)}\n  {r.why}")
    made = len(results) - count["no longer applies"]
    print(
        f"\nmutants: {made} made, {count['killed']} killed, {count['survived']} survived, "
        f"{count['no longer applies']} no longer apply, {count['not testable']} not testable; {explained} explained; "
        f"{seconds / 60:.1f} minutes"
    )
    return 1 if alive else 0
