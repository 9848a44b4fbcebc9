"""The soak from beginning to end; what it starts it ends."""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stacklib import StackError, processes
from stacklib.errors import say as say_line
from stacklib.settings import REPOSITORY
from topiclib.topics import TopicError

from soaklib.ddl import DDL
from soaklib.faults import FAULTS, no_fault
from soaklib.promotion_faults import PROMOTIONS
from soaklib.servers import Servers
from soaklib.verify import FORMATS
from soaklib.world import SoakStream, StreamStuckError

FOLDER = REPOSITORY / ".stack" / "soak"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A stream is verified after so long, on a slow machine after so many faults.
_STREAM_S, _STREAM_FAULTS = 150.0, 8
_SHOWN = 30


class Soak:
    """One run.

    Args:
        world: What it works on.
        minutes: How long faults are made.
        kinds: The kinds of faults.
        again: The command that runs it once more.
        promotions: Promote at least so often, spread over the time.
    """

    def __init__(
        self, world: SoakStream, minutes: float, kinds: Sequence[str], again: str, promotions: int = 0
    ) -> None:
        self.again, self._promotions = again, promotions
        self.world, self._minutes, self._kinds = world, minutes, tuple(kinds)
        self._bag: list[str] = []
        self._rng = random.Random(f"{world.seed}/order")
        self.events = self.tables = self.counted = self.window_rows = 0
        self.differences: list[str] = []
        self._began = time.monotonic()

    def run(self) -> bool:
        """Make faults until the time is over; return whether everything holds."""
        world = self.world
        world.servers.start()
        self._began = time.monotonic()
        deadline = self._began + self._minutes * 60
        try:
            while time.monotonic() < deadline and not self.differences:
                self._soak_stream(deadline)
        except StreamStuckError as error:
            self.differences.append(f"stuck: {error}")
        except TopicError as error:
            self.differences.append(f"the verifier cannot read: {error}")
        self.differences += world.problems
        return not self.differences

    def _soak_stream(self, deadline: float) -> None:
        """Take one stream from its snapshot to its verdict."""
        world = self.world
        world.begin()
        world.say(f"stream {world.stream}: {world.format}, partitions and settings {world.free()}")
        until = time.monotonic() + _STREAM_S
        # Two or three faults meet the snapshot; then it is let through.
        for _ in range(self._rng.randrange(1, 4)):
            if not world.settled.is_set():
                self._inject_fault()
        if not world.settled.is_set():
            world.recover()
        faults = 0
        while time.monotonic() < deadline and (time.monotonic() < until or faults < _STREAM_FAULTS):
            self._inject_fault()
            world.recover()
            faults += 1
        world.say("load stopped; draining the rest, then the verdict")
        verdict = world.finish()
        self.events += verdict.events
        self.tables += verdict.tables
        self.counted += verdict.transactions
        self.window_rows += verdict.again
        self.differences += verdict.differences
        world.say(f"stream {world.stream}: {verdict.events:,} events, {len(verdict.differences)} difference(s)")
        if not self.differences:
            world.delete_stream()

    def _inject_fault(self) -> None:
        world = self.world
        kind, during = self._next_kind(), world.kind
        world.tried[kind] += 1
        fired = FAULTS[kind](world)
        world.fired[kind] += fired
        if fired and during == "snapshot":
            world.fired["snapshot disturbed"] += 1
        world.say(f"{kind} ({during}): {'fired' if fired else 'came too late'}")
        if self._rng.random() < 0.3:
            no_fault(world)

    def _next_kind(self) -> str:
        """Return the next kind of fault: a promotion if there are fewer than there should be by now, else by lot."""
        elapsed_min = (time.monotonic() - self._began) / 60
        if self.promoted < int(self._promotions * (elapsed_min / self._minutes) + 1) and self._promotions:
            return self._rng.choice(list(PROMOTIONS))
        if not self._bag:
            self._bag = self._rng.sample(self._kinds, len(self._kinds))
        return self._bag.pop()

    @property
    def promoted(self) -> int:
        """How often the replica was promoted."""
        return sum(self.world.fired[kind] for kind in PROMOTIONS)

    def summary(self) -> list[str]:
        """Return the report."""
        world = self.world
        seconds = time.monotonic() - self._began
        others = sorted(set(world.fired) - set(FAULTS))
        lines = [
            "",
            f"soak: seed {world.seed}, {seconds / 60:.1f} minutes, {world.stream} stream(s)",
            f"events read: {self.events:,} in {self.tables} table(s); {self.counted:,} transactions counted against "
            "their triggers",
            f"rows read by windows of incremental and interrupted snapshots: {self.window_rows:,}",
            f"load: {sum(world.transactions.values()):,} transactions: {_counts(world.transactions)}",
            f"batches complete: {len(world.epochs)}; attempts: {len(world.attempts.made)}, "
            f"on Spark {sum(bool(a.spark) for a in world.attempts.made)}",
            "faults fired:",
        ]
        lines += [f"  {kind}: {world.fired[kind]} of {world.tried[kind]}" for kind in self._kinds]
        lines.append("also: " + (_counts(Counter({k: world.fired[k] for k in others})) or "nothing"))
        if self.differences:
            lines.append(f"VERDICT: {len(self.differences)} difference(s)")
            lines += [f"  {line}" for line in self.differences[:_SHOWN]]
            lines.append(f"again: {self.again}  (the same faults and load, not at the same moments)")
            lines.append(f"output of every attempt: {world.attempts.logs}")
            lines.append(f"the servers with their data: scripts/stack up --dir {world.folder}")
            lines.append(f"primary at the end: {world.servers.primary.name}, {world.servers.primary.folder}")
        else:
            lines.append("VERDICT: every topic equals its table, each event once, per key in order and without gap")
        unfired = self.missing_kinds()
        lines.append(
            f"never fired: {', '.join(unfired)}" if unfired else f"every one of {len(self._kinds)} kinds fired"
        )
        return lines

    def missing_kinds(self) -> list[str]:
        """Return the kinds of faults and of DDL, and the ends of XA transactions, that did not occur."""
        world = self.world
        ends = [f"load: {end}" for end in ("xa committed", "xa rolled back") if not world.transactions[end]]
        wanted = [*self._kinds, *(f"ddl: {k}" for k in DDL)]
        if "incremental snapshot" in self._kinds:
            wanted.append("incremental snapshot accepted")
        few = [f"{self._promotions - self.promoted} promotions"] if self.promoted < self._promotions else []
        return [k for k in wanted if not world.fired[k]] + ends + few


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items()))


def _interrupt(number: int, frame: object) -> None:
    for name in _SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Random faults under load, verified.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are made (default: 10)")
    parser.add_argument("--seed", type=int, help="of all random choices (default: a new one, printed)")
    parser.add_argument("--faults", help=f"only these kinds, apart by commas; all: {', '.join(FAULTS)}")
    parser.add_argument("--promotions", type=int, default=0, help="promote the replica at least so often")
    parser.add_argument("--rate", type=float, default=40.0, help="transactions a second of each of two threads")
    parser.add_argument("--ddl-every", type=float, default=4.0, help="seconds between two DDL statements, about")
    parser.add_argument(
        "--format", choices=(*FORMATS, "all"), default="json", help="of records; all: each stream has the next one"
    )
    parser.add_argument("--avro", action="store_const", const="avro", dest="format", help="the same as --format avro")
    parser.add_argument("--ddl-late", action="store_true", help="no DDL before the initial snapshot is complete")
    parser.add_argument(
        "--keep", action="store_true", help="leave the servers' data in the folder; so it is after differences"
    )
    parser.add_argument("--dir", type=Path, default=FOLDER, help="folder of data and logs (default: .stack/soak)")
    options = parser.parse_args(argv)
    options.kinds = [k.strip() for k in options.faults.split(",")] if options.faults else list(FAULTS)
    unknown = [k for k in options.kinds if k not in FAULTS]
    if unknown or options.minutes <= 0 or options.rate <= 0 or options.ddl_every <= 0:
        parser.error(f"unknown faults: {', '.join(unknown)}" if unknown else "numbers are above 0")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def _lock_folder(folder: Path) -> bool:
    """Take the lock that one soak at a time holds in a folder; it ends with the process."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / ".soak.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak; return the exit code: 0 when everything holds, 130 after Ctrl-C, else 1."""
    options = _parse_options(argv)
    folder = options.dir.expanduser().resolve()
    # Servers of the environment are somebody's own; this kills servers.
    for name in [n for n in os.environ if n.startswith("MYSQL_CDC_") and n != "MYSQL_CDC_CACHE"]:
        del os.environ[name]
    if not _lock_folder(folder):
        print(f"error: another soak runs in {folder}; choose another folder with --dir", file=sys.stderr)
        return 1
    for old in (folder / "attempts").glob("*"):
        old.unlink()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    formats = FORMATS if options.format == "all" else (options.format,)
    servers, code = Servers(folder, with_registry=formats != ("json",)), 1
    world = SoakStream(
        servers,
        folder,
        options.seed,
        options.rate,
        options.ddl_every,
        options.ddl_late,
        lambda m: say_line("soak", m),
        formats,
    )
    settings = [*(sys.argv[1:] if argv is None else argv)]
    settings += [] if "--seed" in settings else ["--seed", str(options.seed)]
    again = shlex.join(["scripts/soak", *settings])
    soak = Soak(world, options.minutes, options.kinds, again, options.promotions)
    world.say(f"seed {options.seed}")
    try:
        code = 0 if soak.run() else 1
    except KeyboardInterrupt:
        code = 130
    except StackError as error:
        soak.differences.append(f"the soak itself failed: {error}")
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        world.end()
        processes.interrupted.clear()
        # What is wrong can only be looked into with the data.
        servers.end(wipe=not options.keep and code != 1)
    print("\n".join(soak.summary()) if code != 130 else "interrupted; everything is ended", flush=True)
    return code
