"""The mutation run from beginning to end; what it starts it ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mutatelib import settings
from mutatelib.mutant import REPOSITORY, Mutant, load
from mutatelib.requirement_draw import draw, marked_tests
from mutatelib.run import SERVER_S, copied_checkout, run_tests, try_mutant

_STACK = str(REPOSITORY / "scripts" / "stack")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when every mutant was killed, 1 when one was not, 2 when the run makes no sense."""
    options = _options(arguments)
    if options.draw is not None:
        for requirement, tests in draw(marked_tests(REPOSITORY / "tests"), options.draw, options.seed):
            print(f"{requirement}: {' '.join(tests)}")
        return 0
    try:
        if options.settings:
            return _report(_cut_settings(options))
        mutants = [m for m in load() if _chosen(options, m)]
        with _stack(any(not m.quick for m in mutants)):
            return _run(mutants)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Bring each fixed fault of tests/mutants.toml back once, in a copy of the checkout, and see its "
        "test fail. Exit code 1 when one survives, or no longer applies.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only mutants whose tests need no server")
    which.add_argument("--servers", action="store_true", help="only mutants whose tests need servers")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants with TEXT in file, effect or test")
    parser.add_argument("--row", type=int, metavar="N", help="only mutants of this row of docs/fixed-faults.md")
    parser.add_argument("--settings", action="store_true", help="cut each property of tests/effects.toml off instead")
    parser.add_argument("--draw", type=int, metavar="N", help="only name N requirements by chance, with their tests")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (1)")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace, mutant: Mutant) -> bool:
    return (
        not (options.servers if mutant.quick else options.quick)
        and options.row in (None, *mutant.rows)
        and any(options.only in text for text in (mutant.file, mutant.breaks, mutant.test))
    )


@contextlib.contextmanager
def _stack(wanted: bool) -> Iterator[None]:
    """Start the servers when they are wanted and do not run, and stop them then."""
    if not wanted or subprocess.run([_STACK, "status"], capture_output=True, check=False).returncode == 0:
        yield
        return
    subprocess.run([_STACK, "up"], check=True)
    try:
        yield
    finally:
        subprocess.run([_STACK, "down"], check=False)


def _run(mutants: Sequence[Mutant]) -> int:
    if not mutants:
        raise ValueError("no mutant is chosen")
    with copied_checkout() as root:
        tests = list(dict.fromkeys(m.test for m in mutants))
        print(f"running {len(tests)} tests and files of tests on the unchanged text", flush=True)
        code, output = run_tests(root, tests, SERVER_S * 4)
        if code:
            raise ValueError(f"without a mutant, pytest ends with {code}:\n{output[-3000:]}")
        return _report(_try_each(root, mutants))


def _try_each(root: Path, mutants: Sequence[Mutant]) -> Iterator[str]:
    for number, mutant in enumerate(mutants, 1):
        verdict, why = try_mutant(root, mutant)
        print(f"{number}/{len(mutants)} {verdict}: {mutant.file}: {mutant.breaks} ({why})", flush=True)
        if verdict != "killed":
            print(f"  row {mutant.rows}, {mutant.test}: {mutant.out!r} -> {mutant.put!r}", flush=True)
        yield verdict


def _cut_settings(options: argparse.Namespace) -> Iterator[str]:
    wanted = {
        name: test
        for name, test in settings.effects().items()
        if not (options.servers if settings.is_quick(test) else options.quick) and options.only in f"{name} {test}"
    }
    with _stack(not all(map(settings.is_quick, wanted.values()))):
        for number, (name, verdict, why) in enumerate(settings.cut_each(wanted), 1):
            print(f"{number}/{len(wanted)} {verdict}: {name} ({why})", flush=True)
            yield verdict


def _report(verdicts: Iterator[str]) -> int:
    found, spent = Counter(verdicts), os.times()
    print(
        f"{', '.join(f'{count} {verdict}' for verdict, count in found.items())}; "
        f"CPU {spent.children_user + spent.children_system:.0f} s"
    )
    return 0 if found.keys() == {"killed"} else 1
