"""Assets of pipelines and their tables: ``mysql-cdc://host:port/prefix`` and ``mysql-cdc://host:port/prefix/db.table``.

``mysql-cdc://host:port/prefix/verification`` gets an event for each verification.

A DAG that is scheduled on a table's asset runs when a task has written records of that table:

    DAG("report", schedule=table_asset("mysql.example", "shop", "sales", "orders"), ...)

Two assets are the same only when their URIs are equal, so there is one way to write a URI: the host in lower case,
always with the port, and names percent-encoded, including the dots inside of them (``TableId.path``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from airflow_provider_mysql_cdc.cdc.model.table import TableId

SCHEME = "mysql-cdc"
MYSQL_PORT = 3306
VERIFICATION = "verification"
"""Last part of the URI of a pipeline's verifications; that of a table has a dot."""


def pipeline_uri(host: str, prefix: str, port: int = MYSQL_PORT) -> str:
    """Return the URI of a pipeline.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        port: The server's port.
    """
    name = f"[{host.strip('[]')}]" if ":" in host else host
    return f"{SCHEME}://{name.lower()}:{port}/{quote(prefix, safe='')}"


def table_uri(host: str, prefix: str, db: str, table: str, port: int = MYSQL_PORT) -> str:
    """Return the URI of a table in a pipeline.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        db: The table's database.
        table: The table.
        port: The server's port.
    """
    return f"{pipeline_uri(host, prefix, port)}/{TableId(db, table).path()}"


def verification_uri(host: str, prefix: str, port: int = MYSQL_PORT) -> str:
    """Return the URI of a pipeline's verifications.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        port: The server's port.
    """
    return f"{pipeline_uri(host, prefix, port)}/{VERIFICATION}"


def pipeline_asset(host: str, prefix: str, port: int = MYSQL_PORT) -> Any:
    """Return the asset of a pipeline; its events say that records of any table were written.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        port: The server's port.
    """
    from airflow.sdk import Asset

    return Asset(pipeline_uri(host, prefix, port))


def table_asset(host: str, prefix: str, db: str, table: str, port: int = MYSQL_PORT) -> Any:
    """Return the asset of a table; its events say that records of this table were written.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        db: The table's database.
        table: The table.
        port: The server's port.
    """
    from airflow.sdk import Asset

    return Asset(table_uri(host, prefix, db, table, port))


def verification_asset(host: str, prefix: str, port: int = MYSQL_PORT) -> Any:
    """Return the asset of a pipeline's verifications; the extra of its events has the verdict.

    Args:
        host: The MySQL server's name or address, as in the connection.
        prefix: topic.prefix.
        port: The server's port.
    """
    from airflow.sdk import Asset

    return Asset(verification_uri(host, prefix, port))


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return a URI of the scheme in its normal form; Airflow calls this for every asset of the scheme.

    Args:
        uri: The URI.

    Raises:
        ValueError: It names no server or no pipeline, or its last part is not ``db.table``.
    """
    path = [part for part in uri.path.split("/") if part]
    if not uri.hostname or not 1 <= len(path) <= 2:
        raise ValueError(f"{uri.geturl()}: write {SCHEME}://host:port/prefix or {SCHEME}://host:port/prefix/db.table")
    sanitized = pipeline_uri(uri.hostname, unquote(path[0]), uri.port or MYSQL_PORT)
    if path[1:] == [VERIFICATION]:
        sanitized += f"/{VERIFICATION}"
    elif len(path) == 2:
        db, _, table = path[1].partition(".")
        if not db or not table or "." in table:
            raise ValueError(
                f"{uri.geturl()}: {path[1]} is not db.table; write a dot inside a name as %2E, as table_asset does"
            )
        sanitized += f"/{TableId(unquote(db), unquote(table)).path()}"
    authority, _, resource_path = sanitized.removeprefix(f"{SCHEME}://").partition("/")
    return uri._replace(scheme=SCHEME, netloc=authority, path=f"/{resource_path}", query="", fragment="")


def create_asset(
    *, host: str, prefix: str, port: int = MYSQL_PORT, db: str = "", table: str = "", extra: Any = None
) -> Any:
    """Return an asset of the scheme; Airflow calls this for lineage that hooks collect.

    Args:
        host: The MySQL server's name or address.
        prefix: topic.prefix.
        port: The server's port.
        db: The table's database; empty for the pipeline.
        table: The table; empty for the pipeline.
        extra: Airflow's extra.
    """
    from airflow.sdk import Asset

    uri = table_uri(host, prefix, db, table, port) if table else pipeline_uri(host, prefix, port)
    return Asset(uri=uri, extra=extra)


def convert_asset_to_openlineage(asset: Any, lineage_context: Any) -> Any:
    """Return an asset as a dataset of OpenLineage: the table as this provider's own tasks name it, or the pipeline.

    The provider of OpenLineage calls this for inlets and outlets of tasks that say nothing of their lineage themselves,
    such as a consumer that is scheduled on a table's asset.

    Args:
        asset: The asset, with its URI in the normal form.
        lineage_context: The operator or hook that has it.
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = urlsplit(asset.uri)
    path = parts.path.removeprefix("/")
    _, _, last = path.partition("/")
    if not last or last == VERIFICATION:
        return Dataset(namespace=f"{SCHEME}://{parts.netloc}", name="/".join(map(unquote, path.split("/"))))
    return Dataset(namespace=f"mysql://{parts.netloc}", name=str(TableId.from_path(last)))
