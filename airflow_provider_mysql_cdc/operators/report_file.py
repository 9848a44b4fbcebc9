"""The file of a verification's report, in a folder that the author of the DAG names."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import VerifyResult

_FILE_MODE = 0o640


def require_report_folder(folder: str) -> None:
    """Create the folder if it is missing, and check that files can be written into it.

    Raises:
        ConfigError: They cannot.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _folder_error(folder, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _folder_error(folder, "this account may not write into it")


def write_report_file(folder: str, result: VerifyResult) -> str:
    """Write the report as JSON, and return the path.

    Args:
        folder: The folder.
        result: The result, without values that must not be shown.

    Raises:
        ConfigError: It cannot be written.
    """
    from airflow_provider_mysql_cdc.cdc.replaced_file import replace_file

    prefix = re.sub(r"[^\w-]", "_", result.prefix)
    started = datetime.fromtimestamp(result.started_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    path = Path(folder) / f"verify-{prefix}-{started}.json"
    require_report_folder(folder)
    try:
        replace_file(path, json.dumps(result.to_json(), indent=1, ensure_ascii=False, default=str) + "\n", _FILE_MODE)
    except OSError as error:
        raise _folder_error(folder, error.strerror or str(error)) from error
    return str(path)


def _folder_error(folder: str, why: str) -> ConfigError:
    return ConfigError(
        "the report of the verification cannot be written",
        where=f"report_dir={folder}",
        why=why,
        remedy="name a folder that the account of the Airflow worker may write into; the report is in this log too",
    )
