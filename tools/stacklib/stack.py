"""Starting and ending the stack as a whole, and what others need to know about it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from stacklib import kafka, mysql, ports, processes, registry, spark, spark_connect
from stacklib.errors import StackError, say
from stacklib.java import find_java
from stacklib.locks import exclusive
from stacklib.settings import LOOPBACK, MYSQL_CDC_USER, MYSQL_ROOT_USER, MYSQL_VERSIONS, default_run_dir

_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class StackInfo:
    """Addresses and accounts of a running stack.

    ``mysql_origin`` and ``kafka_origin`` say whether a server belongs to the stack ("stack") or is named by
    environment variables ("environment"), in which case the stack neither starts nor ends it.
    """

    dir: str
    mysql_host: str
    mysql_port: int
    mysql_version: str
    mysql_origin: str
    root_user: str
    root_password: str
    cdc_user: str
    cdc_password: str
    kafka: str
    kafka_controller_port: int
    kafka_origin: str
    java_home: str

    def __repr__(self) -> str:
        return f"StackInfo(dir={self.dir!r}, mysql={self.mysql_host}:{self.mysql_port}, kafka={self.kafka})"

    def exports(self) -> dict[str, str]:
        """Return the environment variables by which programs and tests find the stack."""
        return {
            "MYSQL_CDC_STACK_DIR": self.dir,
            "MYSQL_CDC_MYSQL_HOST": self.mysql_host,
            "MYSQL_CDC_MYSQL_PORT": str(self.mysql_port),
            "MYSQL_CDC_MYSQL_ROOT_USER": self.root_user,
            "MYSQL_CDC_MYSQL_ROOT_PASSWORD": self.root_password,
            "MYSQL_CDC_MYSQL_USER": self.cdc_user,
            "MYSQL_CDC_MYSQL_PASSWORD": self.cdc_password,
            "MYSQL_CDC_KAFKA": self.kafka,
            "JAVA_HOME": self.java_home,
        }


def load(folder: Path) -> StackInfo | None:
    """Return what the folder's stack.json says, None when there is none or it is damaged."""
    try:
        raw = json.loads((folder / "stack.json").read_text(encoding="utf-8"))
        return StackInfo(**{field.name: raw[field.name] for field in fields(StackInfo)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def configured_servers(environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return the fields of StackInfo that environment variables fix.

    Addresses that `stack env` itself exported (recognised by MYSQL_CDC_STACK_DIR) fix nothing.

    Raises:
        StackError: a port is not a number.
    """
    if environ.get("MYSQL_CDC_STACK_DIR"):
        return {}
    fields_given: dict[str, str | int] = {}
    host = environ.get("MYSQL_CDC_MYSQL_HOST")
    if host:
        port = environ.get("MYSQL_CDC_MYSQL_PORT") or "3306"
        if not port.isdigit():
            raise StackError("reading MYSQL_CDC_MYSQL_PORT", f"{port!r} is not a port number", "set it to a number")
        root = environ.get("MYSQL_CDC_MYSQL_ROOT_USER", MYSQL_ROOT_USER)
        root_password = environ.get("MYSQL_CDC_MYSQL_ROOT_PASSWORD", "")
        fields_given |= {
            "mysql_host": host,
            "mysql_port": int(port),
            "mysql_origin": "environment",
            "root_user": root,
            "root_password": root_password,
            "cdc_user": environ.get("MYSQL_CDC_MYSQL_USER", root),
            "cdc_password": environ.get("MYSQL_CDC_MYSQL_PASSWORD", root_password),
        }
    if environ.get("MYSQL_CDC_KAFKA"):
        fields_given |= {"kafka": environ["MYSQL_CDC_KAFKA"], "kafka_origin": "environment", "kafka_controller_port": 0}
    return fields_given


def ensure_stack(
    dir: str | os.PathLike[str] | None = None,
    mysql: str | None = None,
    *,
    mysql_port: int | None = None,
    kafka_port: int | None = None,
    kafka_jvm: Sequence[str] = (),
) -> StackInfo:
    """Start what is not running yet and return the stack; call it as often as you like.

    Args:
        dir: folder of data, logs and stack.json; the default is ``.stack`` in the checkout.
        mysql: One of ``MYSQL_VERSIONS``; None keeps what the folder has, else takes a mysqld on PATH, else 9.7.
        mysql_port: a port MySQL must have; None chooses a free one.
        kafka_port: a port Kafka must have; None chooses a free one.
        kafka_jvm: additional options of the broker's JVM; a broker that runs keeps its own.

    Raises:
        StackError: something is missing or a server does not start.
    """
    folder = Path(dir).expanduser().resolve() if dir is not None else default_run_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive(folder / ".lock", f"starting or stopping the stack in {folder}"):
            return _Starter(folder, mysql, mysql_port, kafka_port, kafka_jvm).run()
    except OSError as error:
        raise StackError(f"using {folder}", str(error), "choose another folder with --dir") from error


class _Starter:
    """One run of ensure_stack, under the folder's lock."""

    def __init__(
        self,
        folder: Path,
        version: str | None,
        mysql_port: int | None,
        kafka_port: int | None,
        kafka_jvm: Sequence[str] = (),
    ) -> None:
        self._folder, self._version, self._kafka_jvm = folder, version, kafka_jvm
        self._wanted = {"mysql": mysql_port, "kafka": kafka_port}
        self._before = load(folder)
        self._given = configured_servers(os.environ)
        self._mysql_runs = mysql.running(folder / "mysql")
        self._kafka_runs = kafka.running(folder / "kafka")

    def run(self) -> StackInfo:
        processes.interrupted.clear()
        self._check_version()
        info = self._plan()
        processes.write_private(self._folder / "stack.json", json.dumps(asdict(info), indent=2) + "\n")
        try:
            with ThreadPoolExecutor(2) as pool:
                started = pool.submit(self._start_mysql, info), pool.submit(self._start_kafka, info)
                try:
                    wait(started)
                except BaseException:
                    processes.interrupted.set()
                    raise
        except BaseException:
            self._undo()
            raise
        # The first failure is reported; a server that did start stays, as `status` shows.
        version, java_home = (future.result() for future in started)
        info = replace(info, mysql_version=version, java_home=java_home)
        processes.write_private(self._folder / "stack.json", json.dumps(asdict(info), indent=2) + "\n")
        return info

    def _undo(self) -> None:
        """End what this interrupted run has started; what ran before goes on."""
        for subject, was_running, record in (
            ("kafka", self._kafka_runs, kafka.record(self._folder / "kafka")),
            ("mysql", self._mysql_runs, mysql.record(self._folder / "mysql")),
        ):
            if not was_running and record.exists():
                processes.stop(subject, record)

    def _check_version(self) -> None:
        data_version = mysql.data_version(self._folder / "mysql")
        if (
            data_version
            and self._version
            and not mysql.is_usable_version(data_version, self._version)
            and not self._given.get("mysql_host")
        ):
            raise StackError(
                f"MySQL {self._version} in {self._folder}",
                f"the data there belongs to MySQL {data_version}",
                "choose another folder with --dir, or remove the data with `scripts/stack down --wipe`",
            )

    def _plan(self) -> StackInfo:
        before = self._before
        mysql_port = self._port("mysql", before.mysql_port if before else None, self._mysql_runs, frozenset())
        taken = frozenset({mysql_port})
        remembered = int(before.kafka.rpartition(":")[2]) if before and before.kafka_origin == "stack" else None
        kafka_port = self._port("kafka", remembered, self._kafka_runs, taken)
        taken |= {kafka_port}
        controller = before.kafka_controller_port if before else 0
        if not self._kafka_runs:
            controller = ports.choose("kafka", None, controller or None, taken)
        planned = {
            "dir": str(self._folder),
            "mysql_host": LOOPBACK,
            "mysql_port": mysql_port,
            "mysql_version": before.mysql_version if before else "",
            "mysql_origin": "stack",
            "root_user": MYSQL_ROOT_USER,
            "root_password": "",
            "cdc_user": MYSQL_CDC_USER,
            "cdc_password": (before.cdc_password if before else "") or secrets.token_urlsafe(18),
            "kafka": f"{LOOPBACK}:{kafka_port}",
            "kafka_controller_port": controller,
            "kafka_origin": "stack",
            "java_home": before.java_home if before else "",
        }
        return StackInfo(**{**planned, **self._given})  # type: ignore[arg-type]

    def _port(self, subject: str, remembered: int | None, runs: bool, avoid: frozenset[int]) -> int:
        wanted = self._wanted[subject]
        if runs and remembered is not None:
            if wanted not in {None, remembered}:
                say(subject, f"already runs on port {remembered}; `scripts/stack down` first to move it to {wanted}")
            return remembered
        if f"{subject}_origin" in self._given:
            return remembered or 0
        return ports.choose(subject, wanted, remembered, avoid)

    def _start_mysql(self, info: StackInfo) -> str:
        if info.mysql_origin != "stack":
            version = mysql.handshake_version(info.mysql_port, info.mysql_host)
            _require_answer(
                version is not None, "MySQL", f"{info.mysql_host}:{info.mysql_port}", "MYSQL_CDC_MYSQL_HOST"
            )
            say("mysql", f"using the server of the environment, {info.mysql_host}:{info.mysql_port}")
            return version or ""
        folder = self._folder / "mysql"
        if self._mysql_runs and mysql.handshake_version(info.mysql_port) is not None:
            version = mysql.data_version(folder) or info.mysql_version
            say("mysql", f"{version} already runs on {info.mysql_host}:{info.mysql_port}")
            return version
        if self._mysql_runs:
            processes.stop("mysql", mysql.record(folder))
        data_version = mysql.data_version(folder)
        program = mysql.find_program(self._version or _offered_version(data_version))
        mysql.start(program, folder, info.mysql_port, info.cdc_password)
        return program.version

    def _start_kafka(self, info: StackInfo) -> str:
        java = find_java()
        folder = self._folder / "kafka"
        if info.kafka_origin != "stack":
            host, _, port = info.kafka.split(",")[0].rpartition(":")
            _require_answer(port.isdigit() and kafka.answers(int(port), host), "Kafka", info.kafka, "MYSQL_CDC_KAFKA")
            say("kafka", f"using the brokers of the environment, {info.kafka}")
        elif self._kafka_runs and kafka.answers(int(info.kafka.rpartition(":")[2])):
            say("kafka", f"already runs on {info.kafka}")
        else:
            if self._kafka_runs:
                processes.stop("kafka", kafka.record(folder))
            own = int(info.kafka.rpartition(":")[2])
            kafka.start(java, folder, own, info.kafka_controller_port, self._kafka_jvm)
        return str(java.home)


def _offered_version(data_version: str | None) -> str | None:
    """Return the offered version that can open data of a server version."""
    if data_version is None:
        return None
    return next((name for name in MYSQL_VERSIONS if mysql.is_usable_version(data_version, name)), None)


def _require_answer(answered: bool, server: str, address: str, variable: str) -> None:
    if not answered:
        raise StackError(
            f"reaching {server} at {address}",
            f"it does not answer, and {variable} names it",
            f"start it, correct {variable}, or unset it to let the stack start its own",
        )


def stop_stack(dir: str | os.PathLike[str] | None = None, *, wipe: bool = False) -> None:
    """End the servers this stack started, and remove their data when asked; others are left alone."""
    folder = Path(dir).expanduser().resolve() if dir is not None else default_run_dir()
    if not folder.is_dir():
        say("stack", f"nothing in {folder}")
        return
    with exclusive(folder / ".lock", f"starting or stopping the stack in {folder}"):
        # A server of many databases or topics takes ten seconds to end well, which only its data need.
        seconds = 0.0 if wipe else _STOP_SECONDS
        ended = [
            spark_connect.stop(folder / "connect", min(seconds, 10.0)),
            spark.stop(folder / "spark"),
            registry.stop(folder / "registry", min(seconds, 10.0)),
            processes.stop("kafka", kafka.record(folder / "kafka"), seconds),
            processes.stop("mysql", mysql.record(folder / "mysql"), seconds),
        ]
        kafka.cache_class_archive(folder / "kafka")
        if wipe:
            for name in ("mysql", "kafka", "spark", "connect", "registry"):
                shutil.rmtree(folder / name, ignore_errors=True)
            (folder / "stack.json").unlink(missing_ok=True)
        say("stack", ("stopped" if any(ended) else "nothing was running") + (", data removed" if wipe else ""))
