"""Tables that the account may not read are an error where the configuration names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.sql import execute
from kit.table_rig import FLAT, filled
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import SourcePrivilegeError

PROPERTIES = FLAT
GRANTS = "RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"


@pytest.fixture
def account(root: Any, unique: str, database: str) -> Iterator[dict[str, str]]:
    execute(root, f"USE `{database}`", *filled(database, "aa", "bb"))
    execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'pass-{unique}'", f"GRANT {GRANTS} ON *.* TO '{unique}'")
    execute(root, f"GRANT SELECT ON `{database}`.aa TO '{unique}'")
    yield {"database.user": unique, "database.password": f"pass-{unique}"}
    execute(root, f"DROP USER '{unique}'@'%'")


@pytest.mark.req("SETUP-02")
@pytest.mark.parametrize("separator", [".", r"\."])
def test_a_named_table_that_the_account_may_not_read_is_named(
    separator: str, pipeline: Pipeline, account: dict[str, str], root: Any, database: str
) -> None:
    pipeline.properties |= account | {"table.include.list": f"{database}{separator}aa,{database}{separator}bb"}
    with pytest.raises(SourcePrivilegeError, match="may not read 1 table") as caught:
        pipeline.snapshot()
    assert caught.value.where == f"{database}.bb" and "GRANT SELECT" in caught.value.remedy
    execute(root, f"GRANT SELECT ON `{database}`.bb TO '{account['database.user']}'")
    assert pipeline.snapshot().complete
    assert len(pipeline.records("bb")) == 30


def test_a_named_table_that_does_not_exist_yet_is_none_of_it(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"USE `{database}`", *filled(database, "aa"))
    pipeline.properties["table.include.list"] = f"{database}.aa,{database}.later"
    assert pipeline.snapshot().complete
