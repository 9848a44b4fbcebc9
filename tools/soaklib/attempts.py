"""Attempts: driver processes that are started, watched, killed, frozen and ended."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demolib import family
from stacklib import processes

from soaklib.nursery import ForkServer

OWNER = "soak/run/task/-1"
_EPOCH = re.compile(r"\] epoch (\d+): ")
_TAG = "MYSQL_CDC_SOAK"


@dataclass
class Attempt:
    """One driver process with everything it starts.

    Args:
        number: Its number in the soak.
        process: The process; leader of a session of its own.
        result_file: Where it writes how it ended.
        flag: File that a fault point makes when it fires.
        spark: Spark's master, ``local`` or ``cluster``; empty for tasks that are threads of the driver.
        tag: What its processes have in their environment.
        killed: Whether this soak killed it, or a part of it.
    """

    number: int
    kind: str
    process: family.Process
    log: Path
    result_file: Path
    flag: Path
    spark: str
    tag: str
    killed: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def alive(self) -> bool:
        """Whether the driver still runs."""
        return family.alive(self.process)

    @property
    def fired(self) -> bool:
        """Whether its fault point has fired."""
        return self.flag.exists()

    def members(self) -> set[family.Process]:
        """Return the living processes of its session (Spark's Python daemon has a process group of its own)."""
        return family.members(self.process, self.tag)

    def signal(self, number: signal.Signals) -> bool:
        """Signal the whole session; return whether there was anybody."""
        if not self.alive:
            return False
        for member in self.members():
            with suppress(ProcessLookupError):
                os.kill(member.pid, number)
        return True

    def kill(self) -> bool:
        """Kill -9 of the driver and all it has started."""
        hit = self.signal(signal.SIGKILL)
        self.killed = self.killed or hit
        self.wait(10)
        return hit

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return whether it came in time."""
        limit = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    @property
    def result(self) -> dict[str, Any]:
        """How it ended; ``killed`` when it could not say."""
        try:
            parsed = json.loads(self.result_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"killed": True}
        assert isinstance(parsed, dict)
        return parsed

    @property
    def epoch(self) -> int | None:
        """The batch it went about, as it says in its output."""
        epochs = _EPOCH.search(self.output())
        return int(epochs[1]) if epochs else None

    def output(self) -> str:
        """Return its output."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 25) -> str:
        """Return the end of its output."""
        return processes.tail(self.log, lines=lines)


class Attempts:
    """Start attempts in one folder.

    Args:
        folder: Holds properties, state and the attempts' output.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self._rng = folder, rng
        self.logs = folder / "attempts"
        self.made: list[Attempt] = []
        self.tag = f"{_TAG}={os.getpid()}"
        self._nursery: ForkServer | None = None

    def start(
        self,
        kind: str,
        *,
        owner: str = OWNER,
        fault: dict[str, Any] | None = None,
        spark: str = "",
        only: int | None = None,
    ) -> Attempt:
        """Start one.

        Args:
            kind: ``snapshot``, ``drain`` or ``verify``.
            owner: Who runs; a retry has the same.
            fault: A named fault point of ``cdc/faults.py`` to set, without its flag.
            spark: Submit the job to Spark: ``local`` (one JVM) or ``cluster`` (an executor of its own).
            only: Leave every batch but that of this epoch alone.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        number = len(self.made) + 1
        base = self.logs / f"{number:04d}-{kind}{'-spark' if spark else ''}"
        log, result, flag = (base.with_suffix(s) for s in (".log", ".json", ".fired"))
        arguments = ["--folder", str(self.folder), "--kind", kind, "--owner", owner, "--result", str(result)]
        arguments += ["--slots", str(self._rng.randrange(1, 4)), *(["--spark", spark] if spark else [])]
        arguments += ["--only", str(only)] if only is not None else []
        if kind == "drain" and only is None:  # half of them go on, with writers that live from batch to batch
            arguments += ["--run-for", self._rng.choice(("0", "0", "3", "6"))]
        tag = f"{_TAG}_ATTEMPT={os.getpid()}-{number}"
        env = dict([tag.split("=", maxsplit=1)])
        if fault is not None:
            env["MYSQL_CDC_FAULT"] = json.dumps({"fired": str(flag), **fault})
        if self._nursery is None:
            self._nursery = ForkServer(self.logs, {**os.environ, **dict([self.tag.split("=", maxsplit=1)])})
        process = self._nursery.driver(arguments, env, log)
        attempt = Attempt(number, kind, process, log, result, flag, spark, tag)
        self.made.append(attempt)
        return attempt

    def end(self) -> None:
        """End every process that any attempt has started."""
        if self._nursery is not None:
            self._nursery.close()
        for attempt in self.made:
            if attempt.alive:
                attempt.signal(signal.SIGCONT)
                attempt.kill()
        family.end(None, self.tag, 0.0, lambda _: None)
