"""The plugin that adds the page "MySQL CDC" to Airflow's navigation.

Every process of Airflow loads plugins, so this module imports nothing else of the page; only the API server asks for
the application.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_mysql_cdc.plugins.page_urls import URL_PREFIX

log = logging.getLogger(__name__)


class MySqlCdcPagePlugin(AirflowPlugin):  # type: ignore[misc]
    """Add the page, its JSON and its metrics to the API server."""

    name = "mysql_cdc"
    external_views: ClassVar[list[Any]] = [
        {
            "name": "MySQL CDC",
            # Relative to the base address of Airflow's UI, which may have a path.
            "href": f"{URL_PREFIX.removeprefix('/')}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "mysql-cdc",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[Any]:
        """Return the application, made when the API server asks for it; none where it cannot be made.

        Airflow's API server would not start with a plugin that raises.
        """
        try:
            from airflow_provider_mysql_cdc.plugins.page_app import create_app

            return [{"app": create_app(), "url_prefix": URL_PREFIX, "name": "MySQL CDC"}]
        except Exception:  # an incomplete installation, or an Airflow whose interface has changed
            log.exception("The page MySQL CDC is not available; Airflow starts without it")
            return []
