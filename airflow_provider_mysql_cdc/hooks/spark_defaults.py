"""What a cluster's administrator and the Spark connection have set, and how our own defaults are added to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

# The JVM only starts Python workers and keeps counters: a serial collector and the first compiler stage start fastest.
DEFAULT_CONF = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# One JVM has one collector: it refuses to start with two (-XX:+UseG1GC and -XX:+UseSerialGC).
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_LINE = re.compile(r"\s*([^\s=:]+)\s*[\s=:]\s*(.*?)\s*$")


def cluster_defaults(env: Mapping[str, str], properties_file: str | None = None) -> dict[str, str]:
    """Return what spark-submit reads by itself: the properties file, else ``spark-defaults.conf``.

    Source: org.apache.spark.deploy.SparkSubmitArguments.mergeDefaultSparkProperties (4.x): a properties file that is
    named replaces spark-defaults.conf.

    Args:
        env: The environment of spark-submit.
        properties_file: The file that the job names.
    """
    folder = env.get("SPARK_CONF_DIR") or f"{env.get('SPARK_HOME', '')}/conf"
    try:
        text = Path(properties_file or f"{folder}/spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(("#", "!")))
    return {found[1]: found[2] for line in lines if (found := _LINE.match(line))}


def connection_conf(extra: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the Spark configuration in a connection's extra (``conf``: an object, or its JSON text).

    Args:
        extra: The connection's extra.
        where: Names the connection in messages.

    Raises:
        ConfigError: It is no object.
    """
    given = extra.get("conf") or {}
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(
            "conf in the extra of the Spark connection is not an object",
            where=where,
            remedy='write it as {"conf": {"spark.pyspark.python": "/opt/env/bin/python"}}',
        )
    # As Spark writes them.
    return {n: str(v).lower() if isinstance(v, bool) else v for n, v in found.items() if v is not None}


def with_defaults(ours: Mapping[str, Any], *, cluster: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration to submit: what was asked for, and our defaults added to what the cluster has.

    Args:
        ours: Our defaults.
        cluster: What spark-submit reads by itself.
        asked: What the job and its connection say; it wins.
    """
    made = {**ours, **asked}
    if JAVA_OPTIONS in ours and JAVA_OPTIONS not in asked and cluster.get(JAVA_OPTIONS):
        theirs = str(cluster[JAVA_OPTIONS])
        chosen = _COLLECTOR.search(theirs) is not None
        added = [o for o in str(ours[JAVA_OPTIONS]).split() if not (chosen and _COLLECTOR.fullmatch(o))]
        # What stands later wins in a JVM: theirs.
        made[JAVA_OPTIONS] = " ".join([*added, theirs])
    return made
