"""Asset events of several streams through the one alias of a fleet's task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig

GIVEN = {
    "database.hostname": "localhost",
    "database.user": "u",
    "database.password": "x",
    "kafka.bootstrap.servers": "localhost:9092",
}


class Events:
    """Keep what a task adds, as Airflow's accessor of an alias does."""

    def __init__(self) -> None:
        self.asset_alias_events: list[Any] = []

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.asset_alias_events.append(SimpleNamespace(asset=asset, extra=extra))


def test_the_streams_of_a_fleet_have_events_beside_each_other() -> None:
    """A later job of a stream replaces the events of that stream and no others."""
    from airflow.sdk import Asset, AssetAlias

    from airflow_provider_mysql_cdc.operators.asset_events import StreamAssets, add_run_events

    alias, events = AssetAlias("fleet"), Events()
    assets = StreamAssets(Asset("offsets"), alias)
    for stream, records in (("eu", 0), ("us", 0), ("eu", 0)):
        cfg = ConnectorConfig.from_properties(GIVEN | {"topic.prefix": stream})
        tally = RunTally("run", epoch=1, batches=1 + len(events.asset_alias_events), counts={"t": records})
        add_run_events({"outlet_events": {alias: events}}, cfg, assets, None, tally)
    found = [(event.extra["stream"], event.extra["batches"]) for event in events.asset_alias_events]
    assert found == [("us", 2), ("eu", 3)]
