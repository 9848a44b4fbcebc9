"""One drain or snapshot by Debezium in Kafka Connect standalone, from its start until it ends in good order."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stacklib.connect import Connect
from stacklib.errors import StackError

from benchlib.debezium_worker import MOST_S, NAME, PATIENCE_S, PLACE_FLUSH_S, STREAMS, USUAL_FLUSH_S, DebeziumWorker
from benchlib.process_tree import usage, watch
from benchlib.result import Run
from benchlib.source import DATABASE
from benchlib.workload import Workload

_OFFSETS = "offsets"


@dataclass
class DebeziumStream(DebeziumWorker):
    """Run Debezium's MySQL connector over one workload.

    Args:
        workload: The workload.
    """

    workload: Workload = field(kw_only=True)
    _runs: int = 0

    def find_place(self) -> None:
        """Start it on the empty table, and stop it when it has stored an offset that lies before the load."""
        with self._connect(self.folder / _OFFSETS, "place", PLACE_FLUSH_S) as connect:
            connect.wait(lambda: STREAMS in connect.log.read_text(errors="replace"), "Debezium to stream", PATIENCE_S)
            # A statement that it hears of, so that it stores an offset.
            self.source.run(f"CREATE TABLE {DATABASE}.place (id INT)", f"DROP TABLE {DATABASE}.place")
            connect.wait((self.folder / _OFFSETS).exists, "Debezium's offset", PATIENCE_S)
            time.sleep(3 * PLACE_FLUSH_S)
            connect.ask_to_end()
            watch(connect.pid, lambda: connect.ended)

    def measure(self, records: int) -> Run:
        """Run it until it has written so many records more, end it in good order, and return what it used.

        Args:
            records: Records of the table's topic that the workload makes.
        """
        self._runs += 1
        offsets = self.folder / f"{_OFFSETS}-{self._runs}"
        if not self.workload.snapshot:
            shutil.copy(self.folder / _OFFSETS, offsets)
        wanted = self._end() + records
        with self._connect(offsets, f"run-{self._runs}") as connect:
            samples = watch(connect.pid, self._written(connect, wanted))
        return Run(self.workload.name, NAME, self._end() - wanted + records, usage(samples), load=os.getloadavg()[0])

    @property
    def _topic(self) -> str:
        return f"{self.prefix}.{self.workload.table}"

    def _connect(self, offsets: Path, name: str, flush_s: float = USUAL_FLUSH_S) -> Connect:
        # Each snapshot needs a name of its own: Connect remembers that the one before was done.
        mode = "initial_only" if self.workload.snapshot else "no_data"
        connector = {"table.include.list": self.workload.table, "snapshot.mode": mode}
        return self.start(name, offsets, flush_s, connector, schemas=self.workload.schemas)

    def _written(self, connect: Connect, wanted: int) -> Callable[[], bool]:
        limit, told, looked = time.monotonic() + MOST_S, False, 0.0

        def over() -> bool:
            nonlocal told, looked
            if told:
                return connect.ended
            now = time.monotonic()
            if now > limit or (now - looked > 1 and connect.trouble() is not None):
                why = connect.trouble() or f"not done within {MOST_S:.0f} s"
                raise StackError("measuring Debezium", why, f"see {connect.log}")
            if now - looked > 0.5:
                looked = now
                if self._end() >= wanted:
                    told = True
                    connect.ask_to_end()
            return False

        return over

    def _end(self) -> int:
        """Return how many records the table's topic has."""
        return self.end(self._topic)
