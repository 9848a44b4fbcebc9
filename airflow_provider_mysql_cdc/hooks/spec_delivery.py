"""How a job spec and its secrets reach the driver in each deploy mode (docs/adr/0015-secrets-on-the-way.md).

How a job spec and its secrets reach the driver in each deploy mode (docs/adr/0015-secrets-on-the-way.md).

A spec in a file is encrypted. Its key takes another way, which ends with the processes that need it: the driver's
environment where spark-submit starts the driver, the application's credentials on YARN. On Kubernetes the whole spec is
a Secret.

A secret among the credentials that Hadoop passes from spark-submit to an application on YARN.

Hadoop uses these credentials for passwords of jobs (Sqoop's, for example): the submitting process reads them from the
files that a variable names, the resource manager passes them to the application's containers, and YARN deletes them
with the application. Unlike configuration and files they are never in the staging folder.
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
from airflow_provider_mysql_cdc.cdc.model.job_names import KEY_VARIABLE, SPEC_FILE, YARN_CREDENTIAL
from airflow_provider_mysql_cdc.hooks import kubernetes_secret

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec


TOKEN_FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
"""A comma-separated list of files; source: org.apache.hadoop.security.UserGroupInformation.createLoginUser (3.5)."""
_MAGIC, _WRITABLE = b"HDTS", b"\0"


def encode_credentials(secret: str) -> bytes:
    """Return the content of a credentials file with one secret.

    Source: org.apache.hadoop.security.Credentials.writeTokenStorageToStream and write (3.5): magic, format, number of
    tokens, number of secret keys, then name and value of each, with lengths as Hadoop's VInt.

    Args:
        secret: The secret, of at most 127 bytes: then a VInt is one byte.
    """
    name, value = YARN_CREDENTIAL.encode(), secret.encode()
    return _MAGIC + _WRITABLE + b"\0\1" + bytes([len(name)]) + name + bytes([len(value)]) + value


@contextmanager
def credentials_file(secret: str, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Create a credentials file that a child process can read, as an anonymous file where the system has these.

    Args:
        secret: The secret.
        folder: Folder of mode 0700 for the file on systems without anonymous files.

    Yields:
        The file's path for the child, and the descriptors that it must inherit.
    """
    data = encode_credentials(secret)
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mysql-cdc")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}", (fd,)
        finally:
            os.close(fd)
        return
    path = folder / "credentials"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)
    yield str(path), ()


POD_NAME, YARN_TAGS = "spark.kubernetes.driver.pod.name", "spark.yarn.tags"
"""Settings that identify a driver on a cluster, also when spark-submit is ended before it prints the driver's id."""
FOLDER_PREFIX = "mysql-cdc-job-"
_NEW_FOLDER_PREFIX = "mysql-cdc-new-"
_LOCK_FILE = "held"


@dataclass(frozen=True, slots=True)
class SpecDelivery:
    """Hold what a submission needs so that its driver finds the spec and can read it.

    Args:
        argument: The application's argument.
        job_id: The submission's id.
        files: Files for ``--files``.
        conf: Spark configuration without secrets: it is on the command line and in Spark's web page.
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
    """Describe where a driver will run.

    Args:
        master: Spark master.
        deploy_mode: ``client`` or ``cluster``.
        namespace: Namespace on Kubernetes.
        own_login: Whether spark-submit logs in by itself, with a keytab or as another user.
        token_files: Hadoop credentials files that the environment already names.
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
    """Provide the spec for the driver, and remove it afterwards.

    Args:
        spec: The job.
        target: Where its driver will run.

    Raises:
        ConfigError: The key cannot be passed to the driver securely.
    """
    deliver_in_cluster = _on_kubernetes if target.master.startswith("k8s://") else _on_yarn
    with (deliver_in_cluster if target.deploy_mode == "cluster" else _in_client_mode)(spec, target) as delivery:
        yield delivery


@contextmanager
def _in_client_mode(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """Client mode: the key is in spark-submit's environment, which the driver inherits."""
    with private_folder() as (path, lock_fd):
        key = spec.write_encrypted(path / SPEC_FILE)
        yield SpecDelivery(str(path / SPEC_FILE), spec.id, env={KEY_VARIABLE: key}, fds=(lock_fd,))


@contextmanager
def _on_yarn(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """YARN: the file is localised to the driver's container, the key is one of the application's credentials."""
    if target.own_login:
        raise ConfigError(
            "the key of the job spec cannot be passed to a driver on YARN when Spark logs in by itself",
            where="keytab, principal or proxy_user, in deploy mode cluster",
            why="for such a login Spark drops the submitting user's credentials, and every other way leaves copies",
            remedy="keep a Kerberos ticket on the worker (airflow kerberos, use_krb5ccache), or use deploy mode client",
        )
    with private_folder() as (path, lock_fd):
        key = spec.write_encrypted(path / SPEC_FILE)
        with credentials_file(key, path) as (file, fds):
            token_files = ",".join(filter(None, (target.token_files, file)))
            yield SpecDelivery(
                SPEC_FILE,
                spec.id,
                (str(path / SPEC_FILE),),
                {YARN_TAGS: yarn_tag(spec.id)},
                {TOKEN_FILE_VARIABLE: token_files},
                (*fds, lock_fd),
            )


@contextmanager
def _on_kubernetes(spec: JobSpec, target: DriverTarget) -> Iterator[SpecDelivery]:
    """Kubernetes: the spec is a Secret that only the driver's pod mounts; Spark's upload path is not used."""
    with kubernetes_secret.mounted_secret(spec, target.namespace) as conf:
        pod = {POD_NAME: pod_name(spec.id)}
        yield SpecDelivery(f"{kubernetes_secret.MOUNT_PATH}/{SPEC_FILE}", spec.id, conf={**conf, **pod})


@contextmanager
def private_folder(*, outlives: bool = False) -> Iterator[tuple[Path, int]]:
    """Create a folder of mode 0700 and remove it afterwards; also remove folders of tasks that died before.

    A lock on a file inside shows that the folder is in use: the system frees it when the last process that has the file
    open ends, however it ends (flock(2)). spark-submit inherits the lock, because a driver may outlive its task.

    Args:
        outlives: Do not remove the folder; a later task does, when the last process that holds it has ended.

    Yields:
        The folder, and the file descriptor that holds its lock.
    """
    remove_abandoned_folders()
    new_folder = Path(tempfile.mkdtemp(prefix=_NEW_FOLDER_PREFIX))
    path = new_folder.with_name(new_folder.name.replace(_NEW_FOLDER_PREFIX, FOLDER_PREFIX, 1))
    lock_fd = os.open(new_folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        # Other tasks remove folders with this prefix, so the folder gets it only once it is locked.
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
    """Write a keytab that the driver can read as long as it runs, because it logs in again when its ticket expires.

    Args:
        keytab: The content.
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
    """Remove the folders of this account's killed tasks whose driver no longer runs."""
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
