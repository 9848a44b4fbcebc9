"""What preflight says about servers and accounts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.binlog import dump
from airflow_provider_mysql_cdc.cdc.binlog.dump import RegisteredClient, client_uuid, report_host
from airflow_provider_mysql_cdc.cdc.binlog.grants import Grants, quoted_account
from airflow_provider_mysql_cdc.cdc.binlog.preflight import find_problems, preflight, read_facts
from airflow_provider_mysql_cdc.cdc.binlog.server_facts import CascadingKey, RunRequirements, ServerFacts
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import (
    CdcError,
    ServerIdInUseError,
    SourceAuthError,
    SourcePrivilegeError,
    SourceSettingError,
)
from airflow_provider_mysql_cdc.cdc.model.finding import Finding, raise_first_error
from airflow_provider_mysql_cdc.cdc.model.table import TableId

VARIABLES = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_value_options": "",
    "binlog_rows_query_log_events": "OFF",
    "binlog_expire_logs_seconds": "2592000",
    "gtid_mode": "ON",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
    "wait_timeout": "28800",
}
SEED_GRANT = "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `cdc`@`%`"
SNAPSHOT, DRAIN = RunRequirements(snapshot=True), RunRequirements(snapshot=False)


def facts(grant: str = SEED_GRANT, replicas: tuple[RegisteredClient, ...] = (), **variables: str | None) -> ServerFacts:
    values: dict[str, Any] = {**VARIABLES, **variables}
    return ServerFacts("db:3306", {k: v for k, v in values.items() if v is not None}, Grants.parse([grant]), replicas)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.req("SETUP-02", "SETUP-09", "EX-49")
@pytest.mark.parametrize("demand", [SNAPSHOT, DRAIN])
def test_the_documented_account_on_a_sound_server_needs_nothing(demand: RunRequirements) -> None:
    assert find_problems(facts(), demand) == []
    raise_first_error([])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        pytest.param({"log_bin": "OFF"}, "binary logging is off", marks=pytest.mark.req("SETUP-11", "CFG-111")),
        pytest.param(
            {"binlog_format": "MIXED"}, "binlog_format is MIXED", marks=pytest.mark.req("SETUP-16", "CFG-112")
        ),
    ],
)
def test_settings_without_which_capture_is_impossible(change: dict[str, str], part: str) -> None:
    finding = only(find_problems(facts(**change), DRAIN))
    assert finding.level == "error" and part in finding.what and finding.fix
    assert part in str(finding) and finding.fix in str(finding)
    with pytest.raises(SourceSettingError, match=part) as caught:
        raise_first_error([finding])
    assert caught.value.where == "db:3306" and caught.value.remedy == finding.fix


@pytest.mark.req("SETUP-17", "CFG-113")
@for_each(
    ("change", "part", "advice"),
    [
        ({"binlog_row_image": "MINIMAL"}, "binlog_row_image is MINIMAL", "binlog_row_image = 'FULL'"),
        ({"binlog_row_image": "noblob"}, "binlog_row_image is noblob", "binlog_row_image = 'FULL'"),
        ({"binlog_row_value_options": "PARTIAL_JSON"}, "PARTIAL_JSON", "nothing"),
        ({"binlog_row_metadata": None, "version": "5.7.22"}, "MySQL 5.7.22 has no binlog_row_metadata", "nothing"),
        ({"binlog_row_metadata": "MINIMAL"}, "binlog_row_metadata is MINIMAL", "binlog_row_metadata = 'FULL'"),
        ({"binlog_error_action": "ignore_error"}, "binlog_error_action is IGNORE_ERROR", "ABORT_SERVER"),
    ],
)
def test_settings_that_leave_values_or_events_out_are_a_warning(
    change: dict[str, str | None], part: str, advice: str
) -> None:
    finding = only(find_problems(facts(**change), DRAIN))
    assert finding.level == "warning" and finding.error is None
    assert part in finding.what and advice in finding.fix
    raise_first_error([finding])


def test_partial_json_without_full_images_is_a_warning_of_its_own() -> None:
    found = find_problems(facts(binlog_row_image="MINIMAL", binlog_row_value_options="PARTIAL_JSON"), DRAIN)
    assert [f.level for f in found] == ["warning", "warning"]
    assert any("such rows fail" in f.why for f in found)


class Server:
    """A server that says of its variables only those that it is asked for."""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None: ...

    def cursor(self) -> Server:
        return self

    def execute(self, sql: str, values: Any) -> None:
        self.answer = {
            "SHOW GLOBAL VARIABLES": [(n, v) for n, v in (VARIABLES | ASKED).items() if f"'{n}'" in sql],
            "SHOW GRANTS": [(SEED_GRANT,)],
            "SHOW REPLICAS": [(7, "replica-7", "u-7")],
            "SHOW BINARY LOG STATUS": [],
            "SHOW REPLICA STATUS": [],
            "SELECT CURRENT_USER()": [("cdc@%",)],
            "SELECT USER()": [("cdc@app-1",)],
            "SELECT COUNT(*) FROM information_schema.TABLES": [(0,)],
        }[sql.partition(" WHERE")[0]]
        self.description = [("Server_Id",), ("Host",), ("Replica_UUID",)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.answer


ASKED = {
    "binlog_error_action": "ABORT_SERVER",
    "binlog_rows_query_log_events": "ON",
    "expire_logs_days": "10",
    "version": "8.0.15",
}


@pytest.mark.req("SETUP-12", "SETUP-25", "CFG-115")
def test_the_server_is_asked_for_all_that_is_checked() -> None:
    """The manuals read a table of variables that is another one from version to version; SHOW is the same in all."""
    found = read_facts(Server(), "db:3306")
    assert found.variables == VARIABLES | ASKED
    assert found.is_on("log_bin") and found.replicas == (RegisteredClient(7, "replica-7", "u-7"),)
    assert (found.account, found.login) == ("'cdc'@'%'", "'cdc'@'app-1'")
    assert find_problems(found, RunRequirements(snapshot=True, include_query=True)) == []


@pytest.mark.req("CFG-112", "CFG-113")
@pytest.mark.parametrize("change", [{"binlog_format": "row"}, {"binlog_row_image": "full"}, {"log_bin": "1"}])
def test_lower_case_and_numbers_are_accepted(change: dict[str, str]) -> None:
    assert find_problems(facts(**change), DRAIN) == []


def test_variables_that_a_version_does_not_have_are_fine() -> None:
    assert find_problems(facts(binlog_format=None, binlog_row_value_options=None, binlog_row_image=None), DRAIN) == []


def without(*names: str) -> str:
    grant = SEED_GRANT
    for name in names:
        grant = grant.replace(f"{name}, ", "").replace(f", {name} ON", " ON")
    return grant


@pytest.mark.req("SETUP-06")
def test_an_account_that_may_not_attach_to_the_server_gets_the_name_of_the_privilege() -> None:
    """The preflight asks the grants; the server itself refuses the registration as a replica (error 1045)."""
    finding = only(find_problems(facts(without("REPLICATION SLAVE")), DRAIN))
    assert "to read the binlog" in finding.why and "GRANT REPLICATION SLAVE ON *.*" in finding.fix

    def refuse() -> None:
        raise SourceAuthError("access denied", why="error 1045")

    packets: Any = SimpleNamespace(send=lambda data: None, read_response=refuse)
    with pytest.raises(SourcePrivilegeError, match=r"lacks REPLICATION SLAVE.*GRANT REPLICATION SLAVE"):
        dump._register_replica(packets, 7, "p", "h:3306")


@pytest.mark.req("SETUP-10", "SETUP-03", "SETUP-04", "SETUP-08")
@for_each(
    ("missing", "demand", "phase"),
    [
        ("REPLICATION SLAVE", DRAIN, "always"),
        ("REPLICATION CLIENT", DRAIN, "always"),
        ("SELECT", SNAPSHOT, "snapshots"),
        ("RELOAD", SNAPSHOT, "snapshots"),
    ],
)
def test_a_missing_privilege_is_named_with_the_phase_that_needs_it(
    missing: str, demand: RunRequirements, phase: str
) -> None:
    finding = only(find_problems(facts(without(missing)), demand))
    assert missing in finding.what and phase in finding.why and f"GRANT {missing} ON" in finding.fix
    assert isinstance(finding.error, SourcePrivilegeError)


@pytest.mark.parametrize("name", ["SELECT", "RELOAD", "SHOW DATABASES"])
def test_what_only_snapshots_need_is_not_asked_for_by_a_drain(name: str) -> None:
    assert find_problems(facts(without(name)), DRAIN) == []


@pytest.mark.req("SETUP-05")
def test_show_databases_is_missed_by_snapshots_only() -> None:
    finding = only(find_problems(facts(without("SHOW DATABASES")), SNAPSHOT))
    assert finding.error is None and "lacks SHOW DATABASES" in finding.what and "snapshots list" in finding.why
    assert "GRANT SHOW DATABASES ON" in finding.fix
    assert find_problems(facts(without("SHOW DATABASES")), DRAIN) == []


def test_errors_come_before_warnings() -> None:
    found = find_problems(facts(without("SHOW DATABASES", "REPLICATION CLIENT"), gtid_mode="OFF"), SNAPSHOT)
    assert [f.level for f in found] == ["error", "warning", "warning"]


@pytest.mark.req("SETUP-08")
def test_table_locks_take_the_place_of_a_global_lock_with_a_warning() -> None:
    grant = SEED_GRANT.replace("RELOAD", "LOCK TABLES")
    finding = only(find_problems(facts(grant), SNAPSHOT))
    assert finding.error is None and "global read lock" in finding.what


def test_a_mode_without_table_locks_misses_the_privilege_for_the_global_one() -> None:
    demand = RunRequirements(snapshot=True, table_locks=False)
    assert find_problems(facts(), demand) == []
    finding = only(find_problems(facts(SEED_GRANT.replace("RELOAD", "LOCK TABLES")), demand))
    assert isinstance(finding.error, SourcePrivilegeError) and "lacks RELOAD" in finding.what
    assert "GRANT RELOAD ON" in finding.fix


@pytest.mark.parametrize("name", ["FLUSH_TABLES", "ALL PRIVILEGES"])
def test_other_privileges_that_allow_the_global_lock(name: str) -> None:
    assert find_problems(facts(SEED_GRANT.replace("RELOAD", name)), SNAPSHOT) == []


def test_a_snapshot_without_lock_needs_no_privilege_for_it() -> None:
    assert find_problems(facts(without("RELOAD")), RunRequirements(snapshot=True, takes_locks=False)) == []


def test_select_on_some_databases_is_a_warning() -> None:
    lines = [without("SELECT"), "GRANT SELECT (`a`, `b`), INSERT ON `shop`.`orders` TO `cdc`@`%`"]
    found = find_problems(ServerFacts("db", VARIABLES, Grants.parse(lines)), SNAPSHOT)
    assert only(found).error is None and "some databases" in found[0].what


def test_grants_of_roles_and_revokes_are_no_privileges() -> None:
    grants = Grants.parse(["GRANT `a ON b`@`%`,`c``d`@`%` TO `cdc`@`%`", "REVOKE SELECT ON `x``y`.* FROM `cdc`@`%`"])
    assert grants == Grants(roles="`a ON b`@`%`,`c``d`@`%`", unreadable_databases=("x`y",))
    assert Grants.parse(["REVOKE INSERT ON `x`.* FROM `cdc`@`%`"]) == Grants()
    assert Grants.parse(["GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION"]).has("REPLICATION SLAVE")
    assert Grants.parse(["GRANT USAGE ON *.* TO x", "GRANT SELECT ON `d`.* TO x"]).has_in_any_scope("SELECT")


@pytest.mark.parametrize(
    ("role", "fix"),
    [
        ("GRANT REPLICATION SLAVE ON *.* TO x", "SET DEFAULT ROLE ALL TO the account;"),
        ("GRANT INSERT ON *.* TO x", "GRANT REPLICATION SLAVE ON *.* TO the account;"),
    ],
)
def test_a_role_that_is_not_active_is_the_remedy_for_what_it_has(role: str, fix: str) -> None:
    asked = replace(facts(without("REPLICATION SLAVE")), all_grants=Grants.parse([role]))
    finding = only(find_problems(asked, DRAIN))
    assert finding.fix == fix and ("not active" in finding.why) == fix.startswith("SET")


def test_the_server_adds_up_the_roles() -> None:
    conn = SimpleNamespace(asked=[])

    class Cursor(Server):
        def execute(self, sql: str, values: Any) -> None:
            conn.asked.append(sql)
            self.answer = [("GRANT RELOAD ON *.* TO `cdc`@`%`",)]

    conn.cursor = Cursor
    plain = Grants.parse([SEED_GRANT])
    assert plain.with_roles(conn) is plain and conn.asked == []
    assert Grants(roles="`r`@`%`").with_roles(conn).has("RELOAD")
    assert conn.asked == ["SHOW GRANTS FOR CURRENT_USER() USING `r`@`%`"]


def test_databases_on_which_select_is_revoked_are_named() -> None:
    grants = Grants.parse([SEED_GRANT, "REVOKE SELECT ON `d``2`.* FROM `cdc`@`%`"])
    asked = replace(facts(), grants=grants)
    finding = only(find_problems(asked, SNAPSHOT))
    assert finding.error is None and finding.what.endswith(": d`2")
    assert finding.fix.startswith("GRANT SELECT ON `d``2`.* TO the account;")
    assert find_problems(asked, replace(SNAPSHOT, captures_database=lambda name: name != "d`2")) == []
    assert find_problems(asked, DRAIN) == []


def test_an_anonymous_account_gets_no_grants() -> None:
    """The statements would give them to everybody without an account."""
    asked = replace(facts("GRANT USAGE ON *.* TO ``@`10.%`"), account="''@'10.%'", login="'cdc'@'10.0.0.7'")
    finding = only(find_problems(asked, SNAPSHOT))
    assert isinstance(finding.error, SourceAuthError) and finding.fix.startswith("DROP USER ''@'10.%'; or create 'cdc'")
    assert "GRANT" not in finding.fix


@pytest.mark.req("STRM-02")
def test_a_server_id_that_another_client_uses_is_refused() -> None:
    demand = RunRequirements(snapshot=False, server_ids=range(100, 104))
    assert find_problems(facts(replicas=(RegisteredClient(99, "a"), RegisteredClient(104, "b"))), demand) == []
    finding = only(find_problems(facts(replicas=(RegisteredClient(103, "replica-7"),)), demand))
    assert isinstance(finding.error, ServerIdInUseError) and "replica-7" in finding.why and "103" in finding.what


OURS = client_uuid("shop", 100)


@for_each(
    ("client", "own"),
    [
        (RegisteredClient(100, "mysql-cdc"), False),
        (RegisteredClient(100, report_host("shop"), OURS), True),
        (RegisteredClient(100, report_host("orders"), client_uuid("orders", 100)), False),
        (RegisteredClient(100, report_host("orders"), OURS), False),
        (RegisteredClient(100, report_host("shop"), client_uuid("orders", 100)), False),
        (RegisteredClient(100, "mysql-cdc", "u"), False),
    ],
)
def test_only_the_connection_that_an_earlier_run_left_is_no_finding(client: RegisteredClient, own: bool) -> None:
    """The server lists it until its next heartbeat; a client of another stream of this package is another client."""
    demand = RunRequirements(snapshot=False, server_ids=range(100, 101), client_name="shop")
    findings = find_problems(facts(replicas=(client,)), demand)
    if own:
        assert findings == []
    else:
        finding = only(findings)
        assert isinstance(finding.error, ServerIdInUseError) and client.host in finding.why


def test_each_client_has_a_uuid_of_its_own() -> None:
    uuids = {client_uuid(name, number) for name in ("shop", "orders") for number in (100, 101)}
    assert len(uuids) == 4 and client_uuid("shop", 100) == OURS
    assert report_host("shop") == "mysql-cdc/shop" and len(report_host("x" * 200)) == 60


@pytest.mark.req("SETUP-14", "CFG-110")
def test_the_id_of_the_server_itself_is_refused() -> None:
    finding = only(find_problems(facts(server_id="100"), RunRequirements(snapshot=False, server_ids=range(99, 103))))
    assert isinstance(finding.error, ServerIdInUseError) and "99 to 102" in finding.why


@pytest.mark.parametrize(
    ("change", "demand", "part"),
    [
        pytest.param(
            {},
            RunRequirements(snapshot=False, include_query=True),
            "include.query",
            marks=pytest.mark.req("SETUP-25", "CFG-119"),
        ),
        pytest.param({"gtid_mode": "OFF"}, DRAIN, "GTIDs are off", marks=pytest.mark.req("SETUP-20", "CFG-115")),
        pytest.param(
            {"binlog_expire_logs_seconds": "3600"}, DRAIN, "3600 s", marks=pytest.mark.req("SETUP-18", "CFG-114")
        ),
        pytest.param(
            {"wait_timeout": "60"},
            SNAPSHOT,
            "wait_timeout is 60",
            marks=pytest.mark.req("SETUP-24", "CFG-118", "FAULT-22"),
        ),
        ({"max_allowed_packet": "4194304"}, SNAPSHOT, "max_allowed_packet is 4194304"),
        ({"time_zone": "SYSTEM", "system_time_zone": "CET"}, DRAIN, "time zone is CET"),
        ({"time_zone": "+02:00", "system_time_zone": "UTC"}, DRAIN, "time zone is +02:00"),
        ({}, RunRequirements(snapshot=False, undrained_s=1_400_000), "1400000 s ago"),
    ],
)
def test_what_is_allowed_but_unwise_is_a_warning(change: dict[str, str], demand: RunRequirements, part: str) -> None:
    finding = only(find_problems(facts(**change), demand))
    assert finding.error is None and finding.level == "warning" and part in finding.what
    raise_first_error([finding])


@pytest.mark.req("SETUP-18", "CFG-114")
def test_binlogs_kept_for_ever_or_for_days_are_fine_and_for_one_day_a_warning() -> None:
    assert find_problems(facts(binlog_expire_logs_seconds="0"), DRAIN) == []
    assert find_problems(facts(binlog_expire_logs_seconds="86401"), DRAIN) == []
    assert find_problems(facts(binlog_expire_logs_seconds=None, expire_logs_days="2"), DRAIN) == []
    for variables in (
        {"binlog_expire_logs_seconds": "86400"},
        {"binlog_expire_logs_seconds": None, "expire_logs_days": "1"},
    ):
        assert "86400 s only" in only(find_problems(facts(**variables), DRAIN)).what


def test_a_position_that_is_younger_than_half_the_retention_and_utc_are_no_finding() -> None:
    assert find_problems(facts(), RunRequirements(snapshot=False, undrained_s=1_200_000)) == []
    for zone in ({"time_zone": "SYSTEM", "system_time_zone": "UTC"}, {"time_zone": "+00:00"}):
        assert find_problems(facts(max_allowed_packet="67108864", **zone), SNAPSHOT) == []


def test_a_missing_privilege_comes_with_the_statement_to_paste() -> None:
    account = quoted_account("o'brien@home@10.%")
    assert account == "'o''brien@home'@'10.%'"
    finding = only(find_problems(replace(facts(without("RELOAD")), account=account), SNAPSHOT))
    assert finding.fix == f"GRANT RELOAD ON *.* TO {account};"


def test_require_raises_the_first_error() -> None:
    first, second = CdcError("first"), CdcError("second")
    findings = [
        Finding("warning", "", "", ""),
        Finding("error", "", "", "", first),
        Finding("error", "", "", "", second),
    ]
    with pytest.raises(CdcError) as caught:
        raise_first_error(findings)
    assert caught.value is first


def test_the_demand_follows_the_configuration() -> None:
    properties = {
        "topic.prefix": "p",
        "database.hostname": "db",
        "database.user": "u",
        "database.password": "secret",
        "kafka.bootstrap.servers": "k:9092",
        "database.server.id": "5400",
        "drain.writers": "4",
        "include.query": "true",
        "snapshot.locking.mode": "none",
    }
    demand = RunRequirements.from_config(ConnectorConfig.from_properties(properties), snapshot=True)
    assert demand == RunRequirements(True, False, True, range(5400, 5404), client_name="p")
    properties["snapshot.locking.mode"] = "minimal_percona_no_table_locks"
    demand = RunRequirements.from_config(ConnectorConfig.from_properties(properties), snapshot=True)
    assert demand == RunRequirements(True, True, True, range(5400, 5404), table_locks=False, client_name="p")


class ServerWithKeys(Server):
    """A server with foreign keys that cascade, and with one more variable."""

    def __init__(self, native_keys: str | None) -> None:
        self.variables = {"innodb_native_foreign_keys": native_keys} if native_keys else {}
        self.asked_for_keys = False

    def execute(self, sql: str, values: Any) -> None:
        if "REFERENTIAL_CONSTRAINTS" in sql:
            self.asked_for_keys = True
            self.answer = [("d", "child", "fk_a"), ("d", "grandchild", "fk_b"), ("other", "child", "fk_c")]
            return
        super().execute(sql, values)
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            self.answer += [(n, v) for n, v in self.variables.items() if f"'{n}'" in sql]


def findings_of(server: ServerWithKeys, *, snapshot: bool = True, include: str = "d") -> list[Finding]:
    cfg = ConnectorConfig.from_properties(
        {
            "topic.prefix": "p",
            "database.hostname": "db",
            "database.user": "u",
            "database.password": "x",
            "kafka.bootstrap.servers": "k:9092",
            "database.include.list": include,
        }
    )
    return preflight(server, cfg, snapshot=snapshot)


@pytest.mark.parametrize("native_keys", [None, "ON"])
def test_foreign_keys_that_cascade_below_the_binlog_are_a_warning(native_keys: str | None) -> None:
    finding = only(findings_of(ServerWithKeys(native_keys)))
    assert finding.level == "warning" and finding.error is None
    assert finding.what.endswith(": d.child (fk_a), d.grandchild (fk_b)")
    assert "no row events" in finding.why and "incremental snapshots" in finding.fix


def test_cascades_that_are_logged_or_of_other_tables_are_no_finding() -> None:
    server = ServerWithKeys("OFF")  # as MySQL 9.6 and later by default
    assert findings_of(server) == [] and not server.asked_for_keys
    assert findings_of(ServerWithKeys(None), include="elsewhere") == []


def test_a_drain_does_not_ask_for_foreign_keys() -> None:
    server = ServerWithKeys(None)
    assert findings_of(server, snapshot=False) == [] and not server.asked_for_keys


def test_many_foreign_keys_are_counted() -> None:
    keys = tuple(CascadingKey(TableId("d", f"t{n}"), "fk") for n in range(12))
    what = only(find_problems(replace(facts(), unlogged_keys=keys), SNAPSHOT)).what
    assert "d.t9 (fk) and 2 more" in what and "d.t10" not in what
