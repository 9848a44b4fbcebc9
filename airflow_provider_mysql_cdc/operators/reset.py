"""The operator that moves the stored offset by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.hooks.mysql_cdc import MySqlCdcHook
from airflow_provider_mysql_cdc.operators.arguments import Properties
from airflow_provider_mysql_cdc.operators.asset_events import (
    DEFAULT_ALIAS,
    DEFAULT_ASSET,
    accessor_of,
    add_asset_event,
    reference_alias,
    reference_asset,
    with_offset_asset,
)
from airflow_provider_mysql_cdc.operators.common import (
    MaskedPropertiesMixin,
    merge_properties,
    owner_of,
    task_config,
    with_registry,
)


class MySqlCdcResetOffsetOperator(MaskedPropertiesMixin, BaseOperator):  # type: ignore[misc]
    """Discard an unfinished plan and continue from another offset.

    Use it for the cases in which a person has to decide: a batch whose binlog was purged, a ledger that was lost, a
    state that was copied from elsewhere. Events between the old and the new offset are skipped, or written again.

    Args:
        offset: ``stored`` keeps the stored offset, ``current`` uses the end of the server's binlog, ``earliest`` the
            first position that the server still has, ``file:position`` a transaction boundary, a GTID set the first
            transaction that it does not contain. (templated)
        confirm: The stream's topic.prefix, so that the wrong stream is not reset by mistake. (templated)
        mysql_cdc_conn_id: Connection of type ``mysql_cdc``. (templated)
        kafka_conn_id: Connection of type ``kafka``; None when the first connection's extra names Kafka. (templated)
        schema_registry_conn_id: Connection of type ``schema_registry``, as for ``MySqlCdcSparkOperator``. (templated)
        properties: Connector properties, as for ``MySqlCdcSparkOperator``. (templated)
        run_properties: As for ``MySqlCdcSparkOperator``.
        offset_asset: Asset whose state stores the offset.
        asset_alias: As for ``MySqlCdcSparkOperator``.
        offset_conn_id: Connection of a database that stores the offset instead. (templated)
        kwargs: Arguments of ``BaseOperator``.

    Raises:
        AirflowFailException: A retry will not help; the text names the error and what to do.
        AirflowException: A retry can help.
    """

    template_fields: Sequence[str] = (
        "offset",
        "confirm",
        "mysql_cdc_conn_id",
        "kafka_conn_id",
        "schema_registry_conn_id",
        "offset_conn_id",
        "properties",
    )
    ui_color = "#f3d9d2"

    def __init__(
        self,
        *,
        offset: str,
        confirm: str,
        mysql_cdc_conn_id: str = MySqlCdcHook.default_conn_name,
        kafka_conn_id: str | None = None,
        schema_registry_conn_id: str | None = None,
        properties: Properties | Sequence[Properties] | None = None,
        run_properties: Sequence[str] = (),
        offset_asset: Asset | str = DEFAULT_ASSET,
        asset_alias: AssetAlias | str = DEFAULT_ALIAS,
        offset_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.offset_asset = reference_asset(offset_asset, kwargs)
        self.asset_alias = reference_alias(asset_alias, kwargs)
        super().__init__(**kwargs)
        self.offset = offset
        self.confirm = confirm
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.schema_registry_conn_id = schema_registry_conn_id
        self.properties = properties
        self.run_properties = run_properties
        self.offset_conn_id = offset_conn_id

    @classmethod
    def partial(cls, **arguments: Any) -> Any:
        """Return the operator with some of its arguments, to be expanded; see ``BaseOperator.partial``.

        Args:
            arguments: Arguments that are the same for all mapped tasks; ``asset_events`` is always one of them.
        """
        return super().partial(**with_offset_asset(arguments))

    def execute(self, context: Any) -> dict[str, Any]:
        """Move the offset.

        Returns:
            The new offset as JSON, also pushed as XCom.
        """
        from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset

        with self.naming_errors():
            hook = MySqlCdcHook(self.mysql_cdc_conn_id, self.kafka_conn_id)
            cfg = task_config(self, merge_properties(with_registry(self.properties, self.schema_registry_conn_id)))
            if self.confirm != cfg.topic_prefix:
                raise ConfigError(
                    "the reset is not confirmed",
                    where=f"confirm={self.confirm!r}",
                    why=f"the connection's topic.prefix is {cfg.topic_prefix!r}",
                    remedy="set confirm to the topic.prefix of the stream to reset",
                )
            accessor = accessor_of(context, self.offset_asset)
            store = hook.get_offset_store(cfg, accessor=accessor, offset_conn_id=self.offset_conn_id)
            offset = reset_offset(cfg, store, owner_of(context), self.log.info, to=self.offset)
        extra = {"stream": cfg.topic_prefix, "offset": offset.to_json(), "reset": True}
        add_asset_event(context, self.asset_alias, self.offset_asset, extra)
        return offset.to_json()
