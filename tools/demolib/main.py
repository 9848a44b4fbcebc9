"""The demo from beginning to end; what it starts it ends."""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stacklib import StackError, StackInfo, ensure_stack, processes, registry, spark_connect, stop_stack
from stacklib.errors import say as say_line
from stacklib.settings import LOOPBACK, REPOSITORY
from topiclib.topics import TopicError
from topiclib.wire import WireReader, from_registry

from demolib import report, shop, writer
from demolib.airflow_run import DAGS, Airflow, RunResult
from demolib.airflow_server import USER, AirflowError, connection
from demolib.verify import verify

FOLDER = REPOSITORY / ".stack" / "demo"
PREFIX = "demo"
PARTITIONS = 3
ADHOC_TABLES = ("orders", "customers")
"""Tables that an ad-hoc snapshot reads again."""
_AVRO = "io.confluent.connect.avro.AvroConverter"
_RUN_S = 300.0
_ALTER_S = 20.0
_SUBREAPER = 36
# A demo must end in seconds; SIGKILL is still possible.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(Exception):
    """Say what went wrong in the demo itself."""


def _say(subject: str) -> Callable[[str], None]:
    return lambda message: say_line(subject, message)


class Demo:
    """One run.

    Args:
        folder: The folder of data, logs and Airflow's home.
        scale: Size of the shop, 1 for 200,000 rows.
        rate: Transactions a second of the writer, at most.
        drains: How often the drain DAG runs while the writer writes.
        avro: Whether keys and values are Avro, with a schema registry.
        connect: Whether the jobs run at a Spark Connect server, in place of spark-submit.
    """

    def __init__(
        self, folder: Path, scale: float, rate: float, drains: int, *, avro: bool = False, connect: bool = False
    ) -> None:
        self._folder, self._scale, self._rate, self._drains = folder, scale, rate, drains
        self._began = time.monotonic()
        self._say = _say("demo")
        self._writer: subprocess.Popen[bytes] | None = None
        self._report = folder / "writer.json"
        self._writer_log = folder / "writer.log"
        self.airflow = Airflow(folder / "airflow", _say("air"), dags=DAGS)
        self.info: StackInfo | None = None
        self._avro, self._connect = avro, connect
        self._registry: str | None = None

    # -- the steps --------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Do everything and print the report; return whether both verifications found nothing wrong."""
        self.clear()
        self._say("starting MySQL and Kafka")
        info = self.info = ensure_stack(self._folder)
        if self._avro:
            self._registry = registry.start(self._folder / "registry").url
        if self._connect:
            spark_connect.start_in_checkout(self._folder / "connect")
        self._say("starting airflow standalone; it comes up while the shop is loaded")
        self.airflow.start(self._connections(info), info.java_home)
        self._load(info)
        self._start_writer(info)
        self.airflow.wait_healthy()
        runs = self._stream()
        self._say("verifying every topic against its table")
        altered = (writer.ALTER_TABLE, writer.ALTER_COLUMN)
        again = {name.partition(".")[2]: rows for run in runs for name, rows in run.again.items()}
        result = verify(
            lambda: _connect(info),
            shop.DATABASE,
            info.kafka,
            PREFIX,
            altered=altered,
            again=dict.fromkeys(ADHOC_TABLES, 0) | again,
            wire=WireReader(from_registry(self._registry)) if self._registry else None,
            say=_say("verify"),
        )
        counts = json.loads(self._report.read_text(encoding="utf-8"))
        summary = report.Summary(runs, counts, result, time.monotonic() - self._began)
        print("\n".join(report.lines(summary)), flush=True)
        return result.ok and report.is_verified(runs)

    def _connections(self, info: StackInfo) -> dict[str, str]:
        properties = {
            "topic.prefix": PREFIX,
            "database.include.list": shop.DATABASE,
            "kafka.bootstrap.servers": info.kafka,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": str(PARTITIONS),
            # The verifier identifies events by this header.
            "cdc.id.header": "true",
            "drain.writers": "2",
            # The demo's batches are small, but both writers must run.
            "drain.small.batch.bytes": "0",
        }
        if self._registry:
            properties |= dict.fromkeys(("key.converter", "value.converter"), _AVRO)
            properties |= {f"{part}.converter.schema.registry.url": self._registry for part in ("key", "value")}
        mysql = connection(
            "mysql_cdc",
            info.mysql_host,
            port=info.mysql_port,
            login=info.cdc_user,
            password=info.cdc_password,
            extra=properties,
        )
        return {
            "mysql_cdc_default": mysql,
            "spark_cdc": self._spark_connection(),
        }

    def _spark_connection(self) -> str:
        server = spark_connect.load(self._folder / "connect") if self._connect else None
        if server is None:
            return connection("spark", "local[2]", extra={"deploy-mode": "client"})
        return connection("spark_connect", LOOPBACK, port=server.port)

    def _load(self, info: StackInfo) -> None:
        self._say("loading the shop")
        began = time.monotonic()
        conn = _connect(info)
        try:
            rows = shop.load(conn, shop.DATABASE, shop.Size(self._scale), _say("shop"))
        finally:
            conn.close()
        self._say(f"{rows:,} rows in {len(shop.TABLES)} tables, {time.monotonic() - began:.0f} s")

    def _stream(self) -> list[RunResult]:
        """Take a snapshot, drain and read tables again while the writer runs, stop it, and drain the rest."""
        runs = [self._dag("mysql_cdc_snapshot")]
        for number in range(self._drains):
            if number == 1:
                self._alter()
            if number == self._drains - 1:
                tables = [f"{shop.DATABASE}.{name}" for name in ADHOC_TABLES]
                runs.append(self._dag("mysql_cdc_adhoc_snapshot", {"tables": tables}))
            else:
                runs.append(self._dag("mysql_cdc_drain"))
        self._stop_writer()
        runs.append(self._dag("mysql_cdc_drain"))
        runs.append(self._dag("mysql_cdc_verify", {"history": True}))
        return runs

    def _dag(self, dag_id: str, form: dict[str, Any] | None = None) -> RunResult:
        result = self.airflow.run_dag(dag_id, _RUN_S, self._check_writer, form)
        self._say(f"{dag_id}: {result.records:,} records, {result.wall_s:.0f} s")
        return result

    # -- the writer -------------------------------------------------------------------------------------------------

    def _start_writer(self, info: StackInfo) -> None:
        self._say(f"starting the writer, at most {self._rate:g} transactions a second")
        options = {
            "--host": info.mysql_host,
            "--port": info.mysql_port,
            "--user": info.root_user,
            "--report": self._report,
            "--rate": self._rate,
            "--scale": self._scale,
        }
        command = [sys.executable, "-m", "demolib.writer", *(str(t) for pair in options.items() for t in pair)]
        env = {**os.environ, writer.PASSWORD_VARIABLE: info.root_password}
        with self._writer_log.open("wb") as log:
            self._writer = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _check_writer(self) -> None:
        if self._writer is not None and self._writer.poll() is not None:
            raise DemoError(f"the writer ended with code {self._writer.returncode}\n{processes.tail(self._writer_log)}")

    def _alter(self) -> None:
        assert self._writer is not None
        self._say(f"ALTER TABLE while the writer goes on: {writer.ALTER}")
        self._writer.send_signal(signal.SIGUSR1)
        limit = time.monotonic() + _ALTER_S
        while not self._altered():
            self._check_writer()
            if time.monotonic() > limit:
                raise DemoError(f"the ALTER TABLE did not run within {_ALTER_S:.0f} s")
            time.sleep(0.2)

    def _altered(self) -> bool:
        with suppress(OSError, ValueError):
            return bool(json.loads(self._report.read_text(encoding="utf-8"))["altered"])
        return False

    def _stop_writer(self) -> None:
        """Let the writer finish its transaction and end."""
        if self._writer is None:
            return
        self._check_writer()
        self._writer.terminate()
        code = self._writer.wait(30)
        self._writer = None
        if code:
            raise DemoError(f"the writer ended with code {code}\n{processes.tail(self._writer_log)}")
        self._say("the writer has stopped; draining the rest")

    # -- begin and end ----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """End and remove what an earlier demo has left."""
        self.airflow.stop()
        stop_stack(self._folder, wipe=True)

    def end_writer(self) -> None:
        """End the writer at once."""
        if self._writer is not None and self._writer.poll() is None:
            self._writer.kill()
            self._writer.wait()
        self._writer = None

    def end(self, *, wipe: bool) -> None:
        """End everything this run has started, the writer first.

        Args:
            wipe: Whether the servers' data goes as well; logs stay.
        """
        self.end_writer()
        self.airflow.stop()
        stop_stack(self._folder, wipe=wipe)
        if wipe:
            shutil.rmtree(self.airflow.home / "tmp", ignore_errors=True)
        _reap()

    def places(self) -> list[str]:
        """Return where everything is, for those who want to look around."""
        assert self.info is not None
        info = self.info
        mysql = f"{info.mysql_host}:{info.mysql_port}"
        return [
            "",
            f"Airflow  {self.airflow.url}   user {USER}, password in {self.airflow.password_file}",
            f"MySQL    {mysql}   user {info.root_user} without password, database {shop.DATABASE}",
            f"Kafka    {info.kafka}   topics {PREFIX}.{shop.DATABASE}.*, schema changes in {PREFIX}",
            *([f"Schemas  {self._registry}   Confluent's API, for example /subjects"] if self._registry else []),
            f"logs     {self._folder}",
            "end it all with: scripts/demo --stop" + ("" if self._folder == FOLDER else f" --dir {self._folder}"),
        ]


def _connect(info: StackInfo) -> Any:
    return shop.connect(info.mysql_host, info.mysql_port, info.root_user, info.root_password, None)


def _adopt_orphans() -> None:
    """Become the parent of orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER), so that none stays a zombie."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _interrupt(number: int, frame: object) -> None:
    for name in _SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="MySQL to Kafka under Airflow, verified.")
    parser.add_argument("--keep", action="store_true", help="leave Airflow, MySQL and Kafka running at the end")
    parser.add_argument("--stop", action="store_true", help="end what a demo with --keep has left, and do nothing else")
    parser.add_argument("--avro", action="store_true", help="write Avro, with a schema registry of its own")
    parser.add_argument("--connect", action="store_true", help="run the jobs at a Spark Connect server of its own")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the shop; 1 is 200,000 rows")
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second of the writer, at most")
    parser.add_argument("--drains", type=int, default=4, help="runs of the drain DAG while the writer goes on, from 2")
    parser.add_argument("--dir", type=Path, default=FOLDER, help="folder of data and logs (default: .stack/demo)")
    return parser


def _parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.drains < 2 or options.rate <= 0 or options.scale <= 0:
        parser.error("--drains begins at 2; --rate and --scale are above 0")
    return options


def _lock_folder(folder: Path) -> int:
    """Return the descriptor of a lock that one demo at a time holds.

    Raises:
        DemoError: Another one holds it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / ".demo.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DemoError(f"another demo runs in {folder}; end it first, or choose another folder with --dir") from error
    return descriptor


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code: 0 when the verification holds, 130 after Ctrl-C, else 1."""
    options = _parse_options(argv)
    folder = options.dir.expanduser().resolve()
    # Servers of the environment are somebody's own; the demo drops and creates a database and uses servers of its own.
    for name in [n for n in os.environ if n.startswith("MYSQL_CDC_MYSQL") or n == "MYSQL_CDC_KAFKA"]:
        del os.environ[name]
    _adopt_orphans()
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    demo = Demo(folder, options.scale, options.rate, options.drains, avro=options.avro, connect=options.connect)
    code, keep = 1, False
    try:
        _lock_folder(folder)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        code = 0 if options.stop or demo.run() else 1
        keep = options.keep and not options.stop
    except KeyboardInterrupt:
        print("\ninterrupted; ending everything", file=sys.stderr, flush=True)
        code = 130
    except (DemoError, AirflowError, StackError, TopicError) as error:
        print(f"error: {error}\nlogs stay in {folder}", file=sys.stderr, flush=True)
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if keep:
            demo.end_writer()
        else:
            demo.end(wipe=code in (0, 130))
    if keep:
        print("\n".join(demo.places()))
    return code
