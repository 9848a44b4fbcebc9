"""A process that has imported what is not the project's, and runs tests in forked children of itself.

Started by its path in the copy's folder. A child begins with nothing of the project loaded: it imports the product,
the tests and what helps them from the copy as it finds it, as a new interpreter would. Nothing here may therefore be
imported as a module of ``mutatelib``, of which the copy has its own.

It reads a request a line (JSON: ``arguments`` of pytest, ``limit_s``, ``output`` and ``reds``, two files) and answers
with a line (JSON: ``code``, None when the time was over, and ``cpu_s`` of the child and what it has waited for). The
argument ``airflow`` says that tests import Airflow.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import os
import select
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# Other people's modules that tests without servers import; none starts a thread, opens a file or reads settings of the
# tests when it is imported. Airflow reads its settings then, and is therefore left to the child.
PRELOADED = (
    "_pytest.doctest",
    "_pytest.pytester",
    "xdist.plugin",
    "xdist.looponfail",
    "pytest_timeout",
    "_hypothesis_pytestplugin",
    "anyio.pytest_plugin",
    "asyncio",
    "concurrent.futures.thread",
    "ctypes",
    "email.mime.text",
    "html",
    "http.server",
    "logging.handlers",
    "multiprocessing.connection",
    "sqlite3",
    "ssl",
    "tomllib",
    "unittest.mock",
    "uuid",
    "xml.etree.ElementTree",
    "zipfile",
    "hypothesis",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "hypothesis.internal.conjecture.engine",
    "confluent_kafka",
    "confluent_kafka.admin",
    "confluent_kafka.schema_registry",
    "cryptography.fernet",
    "cryptography.hazmat.primitives.asymmetric.rsa",
    "cryptography.hazmat.primitives.serialization",
    "cryptography.x509",
    "fastavro",
    "greenlet",
    "jsonschema",
    "orjson",
    "py4j.java_gateway",
    "pymysql",
    "pymysql.cursors",
    "pymysql._auth",
    "pymysqlreplication",
    "pymysqlreplication.row_event",
    "pyspark",
    "pyspark.sql",
    "regex",
    "sqlalchemy",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.postgresql",
    "yaml",
    "zstandard",
)
AIRFLOW_MODULES = (
    "alembic",
    "cadwyn",
    "dill",
    "fastapi",
    "httpx",
    "itsdangerous",
    "jinja2",
    "jwt",
    "kubernetes",
    "kubernetes_asyncio",
    "libcst",
    "opentelemetry.sdk.resources",
    "pathspec.patterns",
    "pendulum",
    "pydantic",
    "pydantic_settings",
    "requests",
    "rich.console",
    "structlog",
    "svcs",
    "tenacity",
    "upath.core",
)
"""What Airflow imports in its turn: two thirds of what importing it costs."""
_ROOTS = (".", "tools", "tests", "tests/*", "tests/unit/*")
"""Folders of the copy in which its own modules lie."""


class FailureWriter:
    """Write each test that goes red to a file, as it goes: where, how and with what.

    Args:
        path: The file, a line of JSON for each.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write a test's red phase."""
        report = yield
        if report.failed:
            error = call.excinfo
            self._write(
                node=item.nodeid,
                phase=report.when,
                error=type(error.value).__name__ if error else "",
                text=str(error.value)[:1000] if error else "",
                line=_line(error),
            )
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that could not be read."""
        if report.failed:
            self._write(node=report.nodeid, phase="collect", error="", text=report.longreprtext[-1000:], line="")

    def _write(self, **red: str | None) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(red) + "\n")


def _line(error: pytest.ExceptionInfo[BaseException] | None) -> str:
    # Code that was made as it ran has no source.
    entry = error.traceback[-1] if error and error.traceback else None
    return linecache.getline(str(entry.path), entry.lineno + 1).strip() if entry is not None else ""


def main() -> int:
    """Serve until the input ends; in a child, run its tests and return pytest's exit code."""
    sys.path[0] = os.getcwd()  # as `python -m pytest` has it
    for name in PRELOADED + AIRFLOW_MODULES * ("airflow" in sys.argv[1:]):
        try:
            importlib.import_module(name)
        except ImportError:  # an extra that is not installed
            continue
    _require_no_project_modules()
    gc.collect()
    gc.freeze()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if (child := os.fork()) == 0:
            return _run_child(request)
        print(json.dumps(_wait(child, float(request["limit_s"]))), flush=True)
    return 0


def _require_no_project_modules() -> None:
    """Raise when a child would not find a module in the copy, or a thread would be missing in it."""
    here = Path.cwd()
    own = {path.stem for root in _ROOTS for path in here.glob(f"{root}/*.py")}
    own |= {path.parent.name for root in _ROOTS for path in here.glob(f"{root}/*/__init__.py")}
    if found := sorted(own.intersection(sys.modules) - {"__main__"}):
        raise RuntimeError(f"modules of the project, or called as they are, are loaded: {', '.join(found)}")
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a module has started a thread")


def _run_child(request: dict[str, Any]) -> int:
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(source, target)
    sys.argv = [pytest.__file__.replace("__init__", "__main__"), *request["arguments"]]
    return int(pytest.main(request["arguments"], plugins=[FailureWriter(request["reds"])]))


def _wait(child: int, limit_s: float) -> dict[str, Any]:
    """Wait for a child; end it when its time is over, or when the requesting process has ended."""
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, 0], [], [], limit_s)
    os.close(ended)
    # What a test has left in its session ends with it.
    late = ended not in ready
    if late:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    _end_group(child)
    code = None if late else os.waitstatus_to_exitcode(status)
    return {"code": code, "cpu_s": usage.ru_utime + usage.ru_stime}


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(main())
