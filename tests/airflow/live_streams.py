"""Streams of fleets and of a drain in a running Airflow, of which one job is with spark-submit and two over Connect."""

from __future__ import annotations

import json

from kit.connect_server import RunningServer
from live_airflow import FLEETS, LiveAirflow
from pipelinelib.pipeline import Pipeline

STREAMS = dict(zip(FLEETS, (("s0", "s1", "s2"), ("f0", "f1", "f2"), ("d0",)), strict=True))
"""The streams of each DAG of deferred_fleet.py."""


def streams_of(live: LiveAirflow, pipeline: Pipeline, server: RunningServer) -> dict[str, Pipeline]:
    """Define the connections, and return the streams, each behind a snapshot of its own."""
    host = {"conn_type": "spark_connect", "host": "localhost", "port": server.port}
    account = {"login": "cdc", "password": server.token, "extra": json.dumps({"use_ssl": False})}
    live.call("POST", "connections", {"connection_id": "connect_cdc", **host, **account})
    made = {}
    for name in (name for names in STREAMS.values() for name in names):
        properties = pipeline.properties | {"topic.prefix": f"{pipeline.cfg.topic_prefix}_{name}"}
        for property_ in ("signal.data.collection", "signal.enabled.channels", "signal.kafka.topic"):
            del properties[property_]
        made[name] = Pipeline(dict(properties))
        made[name].snapshot()
        body = {
            "connection_id": f"live_{name}",
            "conn_type": "mysql_cdc",
            "host": properties.pop("database.hostname"),
            "port": int(properties.pop("database.port")),
            "login": properties.pop("database.user"),
            "password": properties.pop("database.password"),
            "extra": json.dumps({**properties, "kafka_conn_id": "kafka_cdc"}),
        }
        live.call("POST", "connections", body)
    return made
