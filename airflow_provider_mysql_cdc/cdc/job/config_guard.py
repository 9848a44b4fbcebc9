"""Put a plan in force under today's configuration: compared with what it was begun under, or taken into it."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import RECORD_FORMAT_LABEL, changed_pins, property_pins
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger


def begin_pinned_plan(cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan) -> tuple[LedgerState, BatchPlan]:
    """Put a plan in force; afterwards nobody but its writers can add anything, and its pins are today's.

    A plan of which nothing is committed takes today's settings.

    Args:
        cfg: The connector's configuration.
        job: The ledger.
        plan: The plan.

    Returns:
        The ledger with the plan in it, and the plan, which bears the attempt's id now.

    Raises:
        ConfigError: A part of it was committed under other settings; it names them.
        OffsetConflictError: The ledger holds another plan.
    """
    ledger = job.begin(plan)
    plan = ledger.plan_in_force()
    current_pins = property_pins(cfg, snapshot=plan.kind == "snapshot")
    if ledger.has_commits():
        if not ledger.complete():
            require_same_pins(plan, current_pins)
        return ledger, plan
    if dict(plan.pins) != current_pins:
        plan = replace(plan, pins=current_pins)
        job.replace_plan(plan)
        ledger = replace(ledger, plan=plan)
    return ledger, plan


def require_same_snapshot_mode(cfg: ConnectorConfig, plan: BatchPlan) -> None:
    """Refuse to go on with a snapshot under a mode that means another kind of work.

    Nothing of it needs to be committed: where the stream goes on behind it was decided when it was planned.

    Args:
        cfg: The connector's configuration.
        plan: The snapshot that is not finished.

    Raises:
        ConfigError: ``snapshot.mode`` has become or was ``never`` or ``recovery``.
    """
    name = F.SNAPSHOT_MODE.name
    planned, current = ({name: p[name]} if name in p else {} for p in (plan.pins, property_pins(cfg, snapshot=True)))
    if planned == current or not plan.pins or not {"=never", "=recovery"} & {*planned.values(), *current.values()}:
        return
    raise ConfigError(
        "the mode was changed inside a snapshot: "
        + "; ".join(changed_pins({RECORD_FORMAT_LABEL: ""} | planned, {RECORD_FORMAT_LABEL: ""} | current)),
        where=f"snapshot {plan.epoch}, planned by {plan.owner or 'unknown'}",
        why="it would be finished without its rows, or with rows that nobody asked for",
        remedy="set it back until the snapshot is done, then change it; or give the snapshot up with DAG "
        "mysql_cdc_reset_offset (offset=current or earliest says where the stream begins then)",
    )


def require_same_pins(plan: BatchPlan, current_pins: dict[str, str]) -> None:
    """Refuse to go on with what was begun under other settings.

    Args:
        plan: The plan in the ledger.
        current_pins: Pins of today's configuration.

    Raises:
        ConfigError: A property that decides about records has another value.
    """
    changed = changed_pins(plan.pins, current_pins)
    if not changed:
        return
    work = "a snapshot" if plan.kind == "snapshot" else "a batch"
    snapshot_remedy = (
        ", then take the snapshot again (mysql_cdc_snapshot with again=true)" if plan.kind == "snapshot" else ""
    )
    raise ConfigError(
        f"what decides about records was changed inside {work}: " + "; ".join(changed),
        where=f"{plan.kind} {plan.epoch}, {plan.start} to {plan.end}",
        why="a part is committed under the values it was begun with; under others, records could be written twice or "
        "not at all",
        remedy="set it back until this is done, then change it; or give the rest up with DAG mysql_cdc_reset_offset"
        + (snapshot_remedy or " (offset=stored: then what is already committed comes again)"),
    )
