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
from dataclasses import replace
from pathlib import Path
from typing import Any

from mutatelib.copies import Copy
from mutatelib.mutant import REPOSITORY, ListError, Mutant, load
from mutatelib.record import VerdictFile, verdict_key
from mutatelib.requirement_draw import describe, draw, marked_requirements
from mutatelib.run import check_controls, run_all, try_mutant
from mutatelib.verdicts import Result, Verdict

_STACK = str(REPOSITORY / "scripts" / "stack")
_RECORD = REPOSITORY / ".stack" / "mutants.jsonl"


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
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only mutants whose tests need no server")
    which.add_argument("--servers", action="store_true", help="only mutants whose tests need servers or Airflow")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only mutants with TEXT in name, file or a test"
    )
    parser.add_argument("--row", type=int, metavar="N", help="only mutants of this row of docs/fixed-faults.md")
    parser.add_argument(
        "--draw", type=int, metavar="N", help="only the edits of N requirements that are drawn among those with a mark"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (1)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once, those that need servers one by one (2)")
    parser.add_argument("--record", type=Path, default=_RECORD, metavar="FILE", help=f"keeps verdicts ({_RECORD.name})")
    parser.add_argument("--again", action="store_true", help="try those too whose verdict is recorded and holds")
    parser.add_argument(
        "--timeout-factor", type=float, default=1.0, metavar="FACTOR", help="factor for all timeouts (1)"
    )
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not run the tests that went red on the unchanged text"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    return parser.parse_args(arguments)


def _drawn(options: argparse.Namespace) -> tuple[frozenset[str] | None, int]:
    """Return the names of the drawn requirements' mutants, None for all, and how many requirements have no edit."""
    if options.draw is None:
        return None, 0
    drawn = draw(marked_requirements(REPOSITORY / "tests"), load(), options.draw, options.seed)
    for line in (missing := describe(drawn)):
        print(line)
    print(f"drew {len(drawn)} requirements with seed {options.seed}; {len(missing)} without an edit", flush=True)
    return frozenset(m.name for d in drawn for m in d.mutants), len(missing)


def _chosen(options: argparse.Namespace, names: frozenset[str] | None) -> list[Mutant]:
    return [
        m
        for m in load()
        if not (options.servers if m.quick else options.quick)
        and (names is None or m.name in names)
        and (options.row is None or options.row in m.rows)
        and (not options.only or any(text in each for text in options.only for each in (m.name, m.file, *m.tests)))
    ]


def _run(options: argparse.Namespace) -> int:
    names, without_edit = _drawn(options)
    chosen = _chosen(options, names)
    if options.list:
        for m in chosen:
            print(f"{m.name} [{m.file}]: {m.breaks}; {m.explained or ' '.join(m.tests)}")
        return 0
    mutants = [m for m in chosen if not m.explained]
    if not mutants:
        print("no mutant is chosen", file=sys.stderr)
        return 2
    began, record = time.monotonic(), VerdictFile(options.record)
    recorded = [] if options.again else [r for m in mutants if (r := record.valid_result(m)) is not None]
    tries = _MutationRun(options, record, recorded, len(mutants))
    to_run = [m for m in mutants if m.name not in tries.results]
    uncontrolled = [] if options.no_baseline else [r for r in recorded if not r.controlled]
    stack_dir, started = _stack(any(not m.quick for m in [*to_run, *(r.mutant for r in uncontrolled)]))
    try:
        for quick, jobs in ((True, options.jobs), (False, 1)):
            run_all([m for m in to_run if m.quick == quick], jobs, stack_dir, tries.report, tries.attempt)
            if not options.no_baseline:
                tries.control(stack_dir, quick)
    finally:
        if started:
            subprocess.run([_STACK, "down"], check=False)
    failed = _report(list(tries.results.values()), len(chosen) - len(mutants), time.monotonic() - began)
    return 1 if without_edit else failed


def _stack(wanted: bool) -> tuple[Path, bool]:
    """Return the folder of the servers, started when they are wanted and do not run, and whether they were."""
    folder = Path(os.environ.get("MYSQL_CDC_STACK_DIR", REPOSITORY / ".stack"))
    if not wanted or subprocess.run([_STACK, "status"], capture_output=True, check=False).returncode == 0:
        return folder, False
    subprocess.run([_STACK, "up"], check=True)
    return folder, True


class _MutationRun:
    """Try mutants, say each result and write it down.

    Args:
        options: The command's options.
        record: Verdicts of earlier runs.
        known: Those that still hold.
        total: How many mutants are chosen.
    """

    def __init__(self, options: argparse.Namespace, record: VerdictFile, known: Sequence[Result], total: int) -> None:
        self.results = {r.mutant.name: r for r in known}
        self._timeout_factor, self._record, self._total = options.timeout_factor, record, total
        self._began, self._known = time.monotonic(), len(known)
        if known:
            print(f"{self._known} of {total} verdicts are from the record {options.record}", flush=True)

    def attempt(self, copy: Copy, mutant: Mutant) -> Result:
        """Try one; what its verdict rests on is in the copy."""
        key = verdict_key(mutant, copy.root)
        return replace(try_mutant(copy, mutant, self._record.killer(mutant), self._timeout_factor), key=key)

    def report(self, result: Result) -> None:
        """Write a result down and print a line for it."""
        self._record.add(result)
        self.results[result.mutant.name] = result
        passed, done = time.monotonic() - self._began, len(self.results) - self._known
        remaining = passed / done * (self._total - len(self.results))
        prefix = f"[{passed:6.0f}s] {len(self.results)}/{self._total} {result.verdict:9} {result.mutant.name}"
        outcome = result.killer if result.verdict == "killed" else f"{result.killer} {result.why}"
        print(
            f"{prefix} ({result.seconds:.0f} s, CPU {result.cpu_s:.1f} s; {outcome.strip()}), {remaining:.0f} s left",
            flush=True,
        )

    def control(self, stack_dir: Path, quick: bool) -> None:
        """See the tests that went red green on the unchanged text; otherwise their red would say nothing."""
        killed = [r for r in self.results.values() if r.verdict == "killed" and r.mutant.quick == quick]
        open_ = [r for r in killed if not r.controlled]
        if not open_:
            return
        print(f"running the tests that went red on the unchanged text, for {len(open_)} mutant(s)", flush=True)
        copy = Copy(stack_dir, airflow=not quick)
        try:
            for result in check_controls(copy, open_, self._timeout_factor):
                self._record.add(result)
                self.results[result.mutant.name] = result
        finally:
            copy.remove()


def _report(results: Sequence[Result], explained: int, seconds: float) -> int:
    count = Counter(r.verdict for r in results)
    alive = [r for r in results if r.verdict != "killed"]
    for r in alive:
        print(f"\n{r.verdict}: {r.mutant.name}\n  {r.mutant.path}: {r.mutant.out!r} -> {r.mutant.put!r}")
        print(f"  breaks: {r.mutant.breaks}\n  tests: {' '.join(r.mutant.tests)}\n  {r.killer} {r.why}")
    made = len(results) - count["no longer applies"]
    others: tuple[Verdict, ...] = ("took too long", "errored", "not testable", "red without it")
    recorded = "".join(f", {count[verdict]} {verdict}" for verdict in others if count[verdict])
    tried = [r for r in results if not r.recorded]
    print(
        f"\nmutants: {made} made, {count['killed']} killed, {count['survived']} survived, "
        f"{count['no longer applies']} no longer apply{recorded}; {explained} explained; "
        f"{len(results) - len(tried)} verdicts from the record; "
        f"CPU {sum(r.cpu_s for r in tried):.0f} s, {seconds / 60:.1f} minutes"
    )
    return 1 if alive else 0
