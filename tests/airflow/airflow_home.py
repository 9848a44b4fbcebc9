"""A throw-away Airflow home: settings, a migrated SQLite database, and running a DAG in this process.

Nothing here imports Airflow at module level: the environment must be set first.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def settings(home: Path) -> dict[str, str]:
    """Return the environment variables that make Airflow use ``home`` and nothing else on this machine."""
    # Database, DAG folder and logs follow the home by themselves.
    return {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment for a subprocess with this home: the current one without other Airflow settings."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    path = os.pathsep.join(filter(None, [str(ROOT), base.get("PYTHONPATH", "")]))
    return {**base, **settings(home), "PYTHONPATH": path}


def migrate() -> None:
    """Create the metadata database of this process's home; Airflow's command line would import all of it once more."""
    from airflow.utils.db import upgradedb

    upgradedb()


def run_dag(dag: Any, conf: dict[str, Any] | None = None, **more: Any) -> Any:
    """Run a DAG once in this process and return its finished run (state, task instances).

    Args:
        dag: The DAG.
        conf: What the trigger form holds.
        more: Further arguments of ``dag.test``.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(dag_folder=os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    return dag.test(run_conf=conf, **more)
