"""How a job's spec and its secrets reach the driver in each deploy mode (docs/adr/0015-secrets-on-the-way.md).

What lies in a file is sealed, and the key goes another way, one that ends with the processes that need it: the
driver's environment where spark-submit starts it, the application's credentials on YARN. On Kubernetes the whole spec
is a Secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE, SPEC_FILE
from airflow_provider_mysql_cdc.hooks import hadoop_credentials, kubernetes_secret

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec

POD_NAME, YARN_TAGS = "spark.kubernetes.driver.pod.name", "spark.yarn.tags"
"""Settings by which a driver on a cluster is found, also when spark-submit is ended before it tells which it is."""
FOLDER_PREFIX = "mysql-cdc-job-"
_NEW_FOLDER_PREFIX = "mysql-cdc-new-"
_LOCK_FILE = "held"


@dataclass(frozen=True, slots=True)
class SpecDelivery:
    """Say what to add to a submission, so that its driver finds the spec and can read it.

    Args:
        argument: The application's argument.
        job_id: The submission's id.
        files: Files for ``--files``.
        conf: Spark configuration; nothing in it is secret, for it stands on the command line and in Spark's web page.
        env: Variables of spark-submit.
        fds: File descriptors that spark-submit inherits.
    """

    argument: str
    job_id: str = ""
    files: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverTarget:
    """Say where a driver will run.

    Args:
        master: Spark master.
        deploy_mode: ``client`` or ``cluster``.
        namespace: Namespace on Kubernetes.
        own_login: Whether spark-submit logs in by itself, with a keytab or as another user.
        token_files: Files of Hadoop credentials that the environment names already.
    """

    master: str
    deploy_mode: str
    namespace: str = ""
    own_login: bool = False
    token_files: str = ""


def pod_name(job: str) -> str:
    """Return the name of a driver's pod.

    Args:
        job: The submission's id.
    """
    return kubernetes_secret.driver_pod_name(kubernetes_secret.secret_name(job))


def yarn_tag(job: str) -> str:
    """Return the tag of an application on YARN.

    Args:
        job: The submission's id.
    """
    return f"mysql-cdc-{job}"


@contextmanager
def deliver_spec(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """Put the spec where the driver will find it, and take it away again.

    Args:
        spec: The job.
        target: Where its driver will run.

    Raises:
        ConfigError: There is no way that is safe.
    """
    deliver_in_cluster = _on_kubernetes if target.master.startswith("k8s://") else _on_yarn
    with (deliver_in_cluster if target.deploy_mode == "cluster" else _in_client_mode)(spec, target) as delivery:
        yield delivery


@contextmanager
def _in_client_mode(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """Client mode: spark-submit's environment becomes the driver's, and ends with it."""
    with private_folder() as (path, lock_fd):
        key = spec.write_encrypted(path / SPEC_FILE)
        yield SpecDelivery(str(path / SPEC_FILE), spec.id, env={KEY_VARIABLE: key}, fds=(lock_fd,))


@contextmanager
def _on_yarn(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """YARN: the file is localised beside the driver, the key is one of the application's credentials."""
    if target.own_login:
        raise ConfigError(
            "in cluster mode on YARN the job's key cannot be handed over with a login of Spark's own",
            where="keytab, principal or proxy_user",
            why="Spark drops the submitting user's credentials for such a login, and every other way leaves copies",
            remedy="keep a ticket on the worker (airflow kerberos, use_krb5ccache), or use deploy mode client",
        )
    with private_folder() as (path, lock_fd):
        key = spec.write_encrypted(path / SPEC_FILE)
        with hadoop_credentials.credentials_file(key, path) as (file, fds):
            token_files = ",".join(filter(None, (target.token_files, file)))
            yield SpecDelivery(
                SPEC_FILE,
                spec.id,
                (str(path / SPEC_FILE),),
                {YARN_TAGS: yarn_tag(spec.id)},
                {hadoop_credentials.TOKEN_FILE_VARIABLE: token_files},
                (*fds, lock_fd),
            )


@contextmanager
def _on_kubernetes(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """Kubernetes: a Secret that only the driver's pod mounts; nothing goes over Spark's upload path."""
    with kubernetes_secret.mounted_secret(spec, target.namespace) as conf:
        pod = {POD_NAME: pod_name(spec.id)}
        yield SpecDelivery(f"{kubernetes_secret.MOUNT_PATH}/{SPEC_FILE}", spec.id, conf={**conf, **pod})


@contextmanager
def private_folder(*, outlives: bool = False) -> Iterator[tuple[Path, int]]:
    """Make a folder of mode 0700 and remove it afterwards, with those of tasks that died before they could.

    A lock on a file inside tells whether it is needed: the system gives it up with the last process that has the file
    open, whatever ended that (flock(2)). spark-submit inherits it, for a driver that starts may outlive its task.

    Args:
        outlives: Leave it to a later task to remove the folder, when the last process that holds it has ended.

    Yields:
        The folder, and the file descriptor that holds its lock.
    """
    remove_abandoned_folders()
    new_folder = Path(tempfile.mkdtemp(prefix=_NEW_FOLDER_PREFIX))
    path = new_folder.with_name(new_folder.name.replace(_NEW_FOLDER_PREFIX, FOLDER_PREFIX, 1))
    lock_fd = os.open(new_folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        # Only what is held has a name that others sweep.
        new_folder.rename(path)
        yield path, lock_fd
    except BaseException:
        outlives = False
        raise
    finally:
        if not outlives:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock_fd)


@contextmanager
def keytab_file(keytab: bytes, *, outlives: bool = False) -> Iterator[tuple[str, int]]:
    """Put a keytab where the driver can read it as long as it lives: it logs in anew when its ticket ends.

    Args:
        keytab: What is in it.
        outlives: As for ``private_folder``.

    Yields:
        The file's path, and the descriptor that spark-submit must inherit.
    """
    with private_folder(outlives=outlives) as (path, lock_fd):
        fd = os.open(path / "keytab", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(keytab)
        yield str(path / "keytab"), lock_fd


def remove_abandoned_folders() -> None:
    """Remove the folders of this account's tasks that were killed, when no driver of theirs is at work."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.getuid() and _is_abandoned(path / _LOCK_FILE):
                shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(file: Path) -> bool:
    lock_fd = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock_fd)
    return True
