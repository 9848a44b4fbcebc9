"""``mysql-cdc changefeed``: the properties that write what a TiCDC changefeed writes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from airflow_provider_mysql_cdc.cdc.config.changefeed import changefeed_properties
from airflow_provider_mysql_cdc.cdc.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options.

    Args:
        parser: Takes them.
    """
    parser.add_argument("--sink-uri", required=True, help="kafka://host:port/topic?protocol=avro&...")
    parser.add_argument("--schema-registry", default="", metavar="URL", help="address of the registry, without account")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the changefeed's configuration file (TOML)")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the properties as JSON and return the exit code.

    Args:
        arguments: The command line.
        out: Where they are printed.

    Raises:
        ConfigError: The changefeed has no equivalent, or the file cannot be read.
    """
    _require_no_account(arguments.schema_registry, "--schema-registry", "every user of the machine sees it there")
    try:
        text = "" if arguments.config is None else arguments.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the file cannot be read", where=f"--config {arguments.config}", why=str(error), remedy="correct the path"
        ) from None
    properties = changefeed_properties(arguments.sink_uri, arguments.schema_registry, text)
    _require_no_account(
        properties["schema-registry"], f"--config {arguments.config}", "properties are printed in clear"
    )
    print(json.dumps(properties, indent=2), file=out)
    return 0


def _require_no_account(url: str, where: str, why: str) -> None:
    if "@" in url:
        raise ConfigError(
            "the registry's account stands in its address",
            where=where,
            why=why,
            remedy="give the address without it; set value.converter.basic.auth.user.info in the Airflow connection",
        )
