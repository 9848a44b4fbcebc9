"""Routes of tables, with their compiled decoders, that a writer keeps from batch to batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.binlog.table_map import TableMap
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings, TableRoute
from airflow_provider_mysql_cdc.cdc.formats.partition_assignment import TopicShare
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

MAX_KEPT_ROUTES = 10_000
"""Routes that are kept at most; each holds compiled decoders."""


@dataclass(slots=True)
class KeptRoutes:
    """Hold the routes of tables that a writer has built last, with what they were built from.

    A table's version is the same object as long as nothing has changed it: the tasks of a stage begin each batch with
    the same structures.

    Attributes:
        settings: What all routes have in common; None until the first is built.
    """

    settings: RouteSettings | None = None
    _routes: dict[TableId, tuple[TableMap, Table, TopicShare, TableRoute]] = field(default_factory=dict)

    def find(self, table_map: TableMap, table: Table, share: TopicShare) -> TableRoute | None:
        """Return the route of a table version; None where it was not built, or from something else.

        Args:
            table_map: The TABLE_MAP event.
            table: The table's structure.
            share: The writer's share of its topic.
        """
        built = self._routes.get(table.id)
        if built is None or built[1] is not table or (built[0], built[2]) != (table_map, share):
            return None
        return built[3]

    def keep(self, table_map: TableMap, table: Table, share: TopicShare, route: TableRoute) -> None:
        """Keep a route.

        Args:
            table_map: The TABLE_MAP event.
            table: The table's structure.
            share: The writer's share of its topic.
            route: The route.
        """
        if len(self._routes) >= MAX_KEPT_ROUTES:
            self._routes.clear()
        self._routes[table.id] = table_map, table, share, route
