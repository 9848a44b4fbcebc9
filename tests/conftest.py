"""Fixtures of the whole suite: one local stack for all tests that need servers."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests"))

# The suite starts hundreds of Python processes. Where the environment forbids to keep compiled modules, each would
# compile again what it imports: seven seconds instead of three for Airflow.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from kit import cut_setting, native_identity, tiers  # noqa: E402

from airflow_provider_mysql_cdc.cdc.decode import native_kernel  # noqa: E402

# What is imported and collected lives as long as the run: looking through it again and again for garbage is a tenth of
# a run's CPU (measured). Garbage is looked for less often, and not in what was there before the first test.
gc.set_threshold(10_000)

# Where the native kernel is installed, each row event that it decodes is decoded in Python too and compared. A run may
# leave it out (MYSQL_CDC_NATIVE=off), but for the tests about it (see with_kernel).
with pytest.MonkeyPatch.context() as patch:
    patch.delenv(native_kernel.ENV_VARIABLE, raising=False)
    NATIVE = native_kernel.kernel().module is not None
if NATIVE:
    native_identity.watch()

if CUT := os.environ.get(cut_setting.VARIABLE, ""):
    cut_setting.cut_setting(CUT)

QUICK = ("unit", "golden", "property")
# What takes longest comes first, so that no worker is left alone with it at the end; measured, in seconds.
LONGEST = {
    "test_brokers": 900,
    "test_unclean_elections": 130,
    "test_new_user": 120,
    "test_soak": 110,
    "test_outages": 110,
    "test_live_airflow": 110,
    "test_spark_cluster": 60,
    "test_failover": 56,
    "test_driver_kills": 50,
    "test_big_transaction": 50,
    "test_killed_application": 50,
    "test_connect_kills": 45,
    "test_connect_operators": 45,
    "test_fleet_kills": 40,
    "test_restored_backup": 33,
    "test_real_pipeline": 30,
    "test_environment_alone": 30,
    "test_fleet_rivals": 30,
    "test_named_errors": 30,
    "test_two_attempts": 30,
    "test_window_servers": 30,
    "test_server_identity": 30,
    "test_verify_replica": 29,
    "test_verify_failover": 24,
    "test_page_browser": 20,
    "test_debezium_consumer": 20,
    "test_columns": 20,
    "test_schema_changes_signal": 20,
    "test_xa": 20,
    "test_transaction_life": 20,
    "test_carry_offsets": 20,
    "test_ledger_topic": 17,
    "test_bad_networks": 15,
    "test_peer_captures": 11,
    "test_topics_between_batches": 9,
    "test_window_changes": 9,
    "test_half_open": 8,
    # One worker has all tests that use the registry, and one those of the private broker.
    "test_avro_jobs": 200,
    "test_kafka_refusals": 64,
}
# What a run has once: one worker has all the tests that use it.
SHARED = ("spark_cluster", "connect_server", "registry", "private_kafka")
_MODULE_FIXTURE = re.compile(r'@pytest\.fixture\(.*scope="module".*\)\ndef (\w+)')
_serial = itertools.count()


# What a run starts has its id in the environment, so that a run that is interrupted leaves nothing either. It is set
# here because the conftest of a folder may come before the first hook.
TAG = "MYSQL_CDC_SUITE"
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ[TAG] = str(os.getpid())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
WORKERS = ROOT / ".stack" / f"workers-{os.environ[TAG]}"


def pytest_configure(config: pytest.Config) -> None:
    """Count CPU seconds where MYSQL_CDC_SUITE_CPU asks for it."""
    if os.environ.get("MYSQL_CDC_SUITE_CPU"):
        from kit.cpu_account import Account, Sampler

        worker = "PYTEST_XDIST_WORKER" in os.environ
        config.pluginmanager.register(Account(None if worker else Sampler(f"{TAG}={os.environ[TAG]}")))


def pytest_report_header() -> str:
    """Say whether the native kernel is compared in this run."""
    return "native kernel: " + ("compared with Python" if NATIVE else "not installed, its tests are deselected")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what workers that were killed have left, and remove their folders."""
    from demolib import family

    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        return
    family.end(None, f"{TAG}={os.getpid()}", 0, lambda line: print(f"\nleft by the tests: {line}"))
    shutil.rmtree(WORKERS, ignore_errors=True)
    for home in Path(tempfile.gettempdir()).glob(f"mysql-cdc-*-{os.getpid()}-*"):
        shutil.rmtree(home, ignore_errors=True)


@functools.cache
def _module_fixtures(path: Path) -> frozenset[str]:
    """Return the names of the fixtures that a file's tests share."""
    return frozenset(_MODULE_FIXTURE.findall(path.read_text(encoding="utf-8")))


def pytest_collect_file(file_path: Path) -> None:
    """Set what Hypothesis tries before a file is imported that may use it; importing Hypothesis takes a second."""
    if file_path.relative_to(ROOT / "tests").parts[0] in QUICK:
        import kit.hypothesis_profiles  # noqa: F401


# xdist reads the groups in this hook too, and would come first.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs no server, and what one worker has to run together; put it in order."""
    if not NATIVE:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("native")])
        items[:] = [item for item in items if not item.get_closest_marker("native")]
    if not tiers.ALL:
        out = tiers.left_out(items, tiers.DAY)
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]
    for item in items:
        part = item.path.relative_to(ROOT / "tests").parts[0]
        if part in QUICK:
            item.add_marker(pytest.mark.quick)
            continue
        if part in ("integration", "fault"):
            item.add_marker(pytest.mark.stack)
        names = item.fixturenames  # type: ignore[attr-defined]
        shared = [name for name in SHARED if name in names]
        if shared and "live" not in names:
            item.add_marker(pytest.mark.xdist_group(shared[0]))
        elif part == "airflow":
            # Tests of a file share what their worker's metadata database holds of them.
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        elif (_module_fixtures(item.path) | _module_fixtures(Path(__file__))).intersection(names):
            # A module's servers are started once when one worker has all the tests that use them.
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_place)


def pytest_collection_finish() -> None:
    """Leave out what stays when garbage is looked for."""
    gc.freeze()


def _place(item: pytest.Item) -> float:
    return -1000 if item.get_closest_marker("quick") else -LONGEST.get(item.path.stem, 0)


@pytest.fixture(autouse=True)
def with_kernel(request: pytest.FixtureRequest) -> None:
    """Let the kernel decode in a test about it, whatever the run has it do."""
    if request.node.get_closest_marker("native"):
        request.getfixturevalue("monkeypatch").delenv(native_kernel.ENV_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def stack() -> Iterator[Any]:
    """Return a running MySQL and Kafka, started when they do not run; each xdist worker has its own."""
    from stacklib import ensure_stack
    from stacklib.errors import StackError
    from stacklib.stack import stop_stack

    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        yield ensure_stack(Path(os.environ.get("MYSQL_CDC_STACK_DIR", ROOT / ".stack")))
        return
    folder = WORKERS / worker
    try:
        try:
            started = ensure_stack(folder)
        except StackError as error:
            # Without a stack all tests of this worker fail, and those of the others that it takes.
            print(f"once more: {error}", file=sys.stderr)
            stop_stack(folder, wipe=True)
            started = ensure_stack(folder)
        yield started
    finally:
        _let_consumer_go()
        stop_stack(folder, wipe=True)


def _let_consumer_go() -> None:
    """Close the consumer that the tests read topics with, before its broker ends: it would go on to look for it."""
    from pipelinelib.topics import READER

    READER.close()


@pytest.fixture(scope="session")
def registry(stack: Any) -> Iterator[str]:
    """Return the address of a running schema registry: the stack's, or one that ends with the session."""
    from stacklib import registry as registries

    given = os.environ.get("MYSQL_CDC_SCHEMA_REGISTRY")
    if given:
        yield given
        return
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    folder = Path(os.environ.get("MYSQL_CDC_STACK_DIR", ROOT / ".stack")) if worker is None else WORKERS / worker
    folder = folder / "registry"
    ran = registries.running(folder)
    yield registries.start(folder).url
    if not ran:
        registries.stop(folder)


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a running Spark standalone cluster (tests/kit/spark_cluster.py), started once for the session."""
    from kit.spark_classes import options
    from kit.spark_cluster import running_cluster
    from pipelinelib.submit import spark_home

    with running_cluster(options(ROOT / ".stack" / "classes", spark_home())) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_server() -> Iterator[Any]:
    """Return a running Spark Connect server (tests/kit/connect_server.py), started once for the session."""
    from kit.connect_server import running_server
    from kit.spark_classes import options
    from pipelinelib.submit import spark_home

    with running_server(jvm=options(ROOT / ".stack" / "classes", spark_home())) as server:
        yield server


@pytest.fixture(scope="session")
def private_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a broker with one listener for each way to connect (tests/kit/private_kafka.py)."""
    from kit.private_kafka import PrivateKafka

    broker = PrivateKafka.create(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield the servers beside the stack's that tests get clean (``kit.private_mysql.Pool``)."""
    from kit.private_mysql import Pool

    made = Pool(tmp_path_factory)
    yield made
    made.end()


@pytest.fixture(scope="module")
def servers(pool: Any) -> Iterator[Any]:
    """Yield two servers of the pool as ``kit.replication.Pair``; ``begin`` makes one the replica of the other."""
    from kit.replication import lent_pair

    with lent_pair(pool) as made:
        yield made


@pytest.fixture(autouse=True)
def _spark_starts_fast(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Spark drivers map their classes from a file, and leave theirs in the tests' folder when they are killed."""
    name = "SPARK_SUBMIT_OPTS"
    if name in os.environ or request.node.get_closest_marker("spark") is None:
        return
    from kit.spark_classes import options
    from pipelinelib.submit import spark_home

    unpacked = tmp_path_factory.mktemp("jvm")
    os.environ[name] = f"{options(ROOT / '.stack' / 'classes', spark_home())} -Djava.io.tmpdir={unpacked}"


@pytest.fixture
def root(stack: Any) -> Iterator[Any]:
    """Return an open root connection, autocommit, utf8mb4."""
    conn = pymysql.connect(
        host=stack.mysql_host,
        port=stack.mysql_port,
        user=stack.root_user,
        password=stack.root_password,
        charset="utf8mb4",
        autocommit=True,
        # Reading the machine's certificates takes longer than most that is asked.
        ssl_disabled=True,
        init_command="SET /*!80000 SESSION information_schema_stats_expiry = 0, */ autocommit = 1",  # as in ``session``
    )
    yield conn
    conn.close()


@pytest.fixture
def proxy(stack: Any) -> Iterator[Any]:
    """Return a proxy in front of MySQL that a test may slow down, cut and freeze."""
    from kit.tcp_proxy import tcp_proxy

    with tcp_proxy(stack.mysql_host, stack.mysql_port) as made:
        yield made


@pytest.fixture
def unique() -> str:
    """Return a name no other test uses, fit for databases, topics and owners."""
    return f"t{os.getpid()}_{int(time.time() * 1000) % 10**9}_{next(_serial)}"


@pytest.fixture
def database(root: Any, unique: str) -> Iterator[str]:
    """Return a fresh, empty database; dropped afterwards with what was granted on its tables."""
    with root.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{unique}` CHARACTER SET utf8mb4")
    yield unique
    with root.cursor() as cursor:
        # Dropping a database leaves the privileges on its tables (MySQL manual, "DROP DATABASE").
        cursor.execute("SELECT DISTINCT User, Host, Table_name FROM mysql.tables_priv WHERE Db = %s", (unique,))
        for user, host, table in cursor.fetchall():
            cursor.execute(f"REVOKE ALL PRIVILEGES ON `{unique}`.`{table}` FROM `{user}`@`{host}`")
        cursor.execute(f"DROP DATABASE IF EXISTS `{unique}`")


@pytest.fixture
def properties(stack: Any, unique: str, database: str) -> Iterator[dict[str, str]]:
    """Return connector properties that capture the test's own database under a prefix of its own.

    Afterwards the test's topics are deleted: a broker works for each topic as long as it is there, and whoever lists
    topics pays for all. Two thousand of them took 0.03 CPU seconds a second, and 20 ms a listing (measured).
    """
    yield {
        "topic.prefix": unique,
        "database.hostname": stack.mysql_host,
        "database.port": str(stack.mysql_port),
        "database.user": stack.cdc_user,
        "database.password": stack.cdc_password,
        # A handshake for each connection is a tenth of what a small drain costs; tests of TLS ask for it.
        "database.ssl.mode": "disabled",
        "database.include.list": database,
        "kafka.bootstrap.servers": stack.kafka,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }
    _delete_topics(stack.kafka, unique)


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, properties: dict[str, str]) -> Any:
    """Return a pipeline of the test; its module sets what its tests have in common as ``PROPERTIES`` and ``SLOTS``."""
    from pipelinelib.pipeline import Pipeline

    module = request.module
    return Pipeline(properties | getattr(module, "PROPERTIES", {}), slots=getattr(module, "SLOTS", Pipeline.slots))


def _delete_topics(kafka: str, name: str) -> None:
    """Ask the broker to delete the topics with a name in theirs; nobody waits for it."""
    from airflow_provider_mysql_cdc.cdc.errors import SinkConnectionError
    from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
    from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts

    admin = make_admin({"bootstrap.servers": kafka})
    with contextlib.suppress(SinkConnectionError):  # a test may have left the broker without an answer
        mine = [topic for topic in all_partition_counts(admin) if re.search(rf"{re.escape(name)}(?!\d)", topic)]
        if mine:
            admin.delete_topics(mine)
