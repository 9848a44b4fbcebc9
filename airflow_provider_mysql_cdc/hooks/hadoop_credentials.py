"""A secret among the credentials that Hadoop passes from spark-submit to an application on YARN.

Hadoop uses these credentials for passwords of jobs (Sqoop's, for example): the submitting process reads them from the
files that a variable names, the resource manager passes them to the application's containers, and YARN deletes them
with the application. Unlike configuration and files they are never in the staging folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_mysql_cdc.cdc.model.job_names import YARN_CREDENTIAL

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
