"""Addresses of the page "MySQL CDC"; they are stored in links, so they do not change."""

from __future__ import annotations

from urllib.parse import quote

URL_PREFIX = "/mysql-cdc"
"""Where Airflow's API server mounts the page, below the path of ``[api] base_url``."""


def pipeline_url(conn_id: str) -> str:
    """Return the address of a pipeline's page, relative to the address of Airflow.

    Args:
        conn_id: Its connection of type ``mysql_cdc``.
    """
    return f"{URL_PREFIX}/#/pipelines/{quote(conn_id, safe='')}"
