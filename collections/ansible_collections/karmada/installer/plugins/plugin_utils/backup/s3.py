# SPDX-License-Identifier: Apache-2.0
"""Bucket of S3, or of a store that speaks its protocol, as a target of backups.

Nothing of the user's own settings of AWS counts (files, environment, the metadata service of a machine): the account,
the region and the store are those of the document. Checksums beyond those of the protocol's first version are left out,
and buckets are named in the path, because many stores know nothing else; what is stored is read back and compared
anyway.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO

from ..document.backups import S3
from ..libraries import missing_library
from ..problems import Problem, ProblemsError, Reason
from . import workplace
from .encryption import Writable, reader_only
from .targets import ABANDONED, CHUNK, FileError, Kept, Target, not_deleted

try:
    import boto3
    import botocore.config
    import botocore.exceptions
    import botocore.session
    from boto3.s3.transfer import TransferConfig
except ImportError:  # reported by S3Target
    boto3 = None

#: For what moves data: a store may take long to put a large file together.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 10, 120, 4
#: For questions (is it there, what is there), which come first: a store that accepts and is silent is told in time.
ASK_SECONDS, ASK_ATTEMPTS = 15, 2
#: Parts of an upload in bytes; one is in memory at a time. 10,000 of them are more than any etcd holds.
PART = 16 << 20
ACCESS_KEY, SECRET_KEY, AUTHORITY = "accessKeyID", "secretAccessKey", "ca.crt"

_REFUSED = "let the account of the Secret list, read, write and delete below the prefix"
#: Code of an answer → remedy. Any other code is told as it is.
_REMEDIES = {
    **dict.fromkeys(("AccessDenied", "403", "AllAccessDisabled"), _REFUSED),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "XAdminUserNotFound"),
        "put a valid key and its secret into the Secret, and the bucket's region into the document",
    ),
    **dict.fromkeys(("NoSuchBucket", "404"), "create the bucket, or write the name of one that is there"),
    **dict.fromkeys(
        ("QuotaExceeded", "XMinioStorageFull", "XAmzQuotaExceeded", "ServiceQuotaExceeded"), "make room in the store"
    ),
}


class S3Target(Target):
    """Bucket with the account of a Secret. ``where`` is the field that names the Secret."""

    def __init__(self, deployment: str, wanted: S3, secret: Mapping[str, bytes], where: str) -> None:
        if boto3 is None:
            raise missing_library("boto3", "backups in S3")
        self._prefix = "".join(f"{part}/" for part in (wanted.prefix, deployment) if part)
        super().__init__(deployment, f"s3://{wanted.bucket}/{self._prefix}")
        self._bucket = wanted.bucket
        self._files = workplace.made()
        try:
            self._client, self._asking = _clients(wanted, _account(secret, where), self._authority(secret))
        except (ValueError, botocore.exceptions.BotoCoreError) as error:
            workplace.remove(self._files)
            raise self._problem(str(error), "write the URL of the store as https://host:port") from None

    def close(self) -> None:
        """Close connections."""
        self._client.close()
        self._asking.close()
        workplace.remove(self._files)

    def check(self) -> None:
        """See that the bucket is there, and that the account may write and delete in it."""
        key = f"{self._prefix}.probe-{os.urandom(8).hex()}"
        with self._telling():
            self._asking.put_object(Bucket=self._bucket, Key=key, Body=b"")
            # An object lock lets nothing go; then the account has to do without.
            with suppress(botocore.exceptions.ClientError):
                self._asking.delete_object(Bucket=self._bucket, Key=key)

    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Upload the file, a large one in parts; if that fails, its parts go."""
        key = self._key(name, file)
        with self._telling():
            if self._is_there(key):
                remedy = "nothing is overwritten; look who else writes there"
                raise self._problem(f"{name}/{file} is there already", remedy)
            transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, use_threads=False)
            self._client.upload_fileobj(content, self._bucket, key, Config=transfer)
            found = self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"]
        if found != size:
            raise self._problem(f"{name}/{file} has {found} of {size} bytes", "look after the store")

    def get(self, name: str, file: str, into: Writable) -> None:
        """Download the file."""
        with self._telling(f"{name}/{file}"):
            body = self._client.get_object(Bucket=self._bucket, Key=self._key(name, file))["Body"]
            with body:
                kept = Kept(into)
                for chunk in body.iter_chunks(CHUNK):
                    kept.write(chunk)

    def _entries(self) -> Iterable[tuple[str, str]]:
        found = []
        with self._telling():
            for page in self._asking.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            ):
                for entry in page.get("Contents") or ():
                    name, slash, file = entry["Key"].removeprefix(self._prefix).partition("/")
                    if slash and "/" not in file:
                        found.append((name, file))
        return found

    def _remove(self, name: str, file: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._key(name, file))
        except botocore.exceptions.ClientError as error:
            if _code(error) not in ("NoSuchKey", "404"):
                raise not_deleted(name, self.where, _words(error)) from None
        except botocore.exceptions.BotoCoreError as error:
            raise self._unreachable(error) from None

    def abandoned(self, now: datetime) -> list[str]:
        """As everywhere; parts of uploads that were cut off are deleted with it, as no list shows them."""
        with suppress(botocore.exceptions.ClientError, ProblemsError), self._telling():
            pages = self._asking.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for upload in page.get("Uploads") or ():
                    if upload["Initiated"].astimezone(UTC) < now - ABANDONED:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
        return super().abandoned(now)

    def _key(self, name: str, file: str) -> str:
        return f"{self._prefix}{name}/{file}"

    def _is_there(self, key: str) -> bool:
        try:
            self._asking.head_object(Bucket=self._bucket, Key=key)
        except botocore.exceptions.ClientError as error:
            if _code(error) in ("404", "NoSuchKey", "NotFound"):
                return False
            raise
        return True

    def _authority(self, secret: Mapping[str, bytes]) -> str | None:
        if AUTHORITY not in secret:
            return None
        path = self._files / AUTHORITY
        with open(path, "xb", opener=reader_only) as file:
            file.write(secret[AUTHORITY])
        return str(path)

    @contextmanager
    def _telling(self, what: str = "") -> Iterator[None]:
        """Errors of the library as problems; ``what`` names the file that was asked for."""
        try:
            yield
        except botocore.exceptions.ClientError as error:
            code = _code(error)
            if what and code in ("NoSuchKey", "404"):
                raise FileError(
                    self._problem(f"{what} is not there", "use another backup").problems[0], is_gone=True
                ) from None
            raise self._problem(_words(error), _REMEDIES.get(code, "look what the store says of it")) from None
        except boto3.exceptions.Boto3Error as error:
            # What goes wrong in an upload is told with its cause as text.
            cause = error.__cause__ or error.__context__
            if isinstance(cause, botocore.exceptions.ClientError):
                raise self._problem(_words(cause), _REMEDIES.get(_code(cause), "make room in the store")) from None
            raise self._problem(str(error), "look what the store says of it") from None
        except (botocore.exceptions.BotoCoreError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ProblemsError:
        remedy = "make the store reachable from the machine that runs Ansible; ca.crt in the Secret is its authority"
        return self._problem(str(error) or type(error).__name__, remedy)

    def _problem(self, what: str, remedy: str) -> ProblemsError:
        return ProblemsError(Problem(what, self.where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))


def _account(secret: Mapping[str, bytes], where: str) -> tuple[str, str]:
    missing = [key for key in (ACCESS_KEY, SECRET_KEY) if not secret.get(key, b"").strip()]
    if missing:
        remedy = f"put the account of the store into the Secret, under the keys {ACCESS_KEY} and {SECRET_KEY}"
        raise ProblemsError(Problem(f"has no {' and no '.join(missing)}", where, remedy, reason=Reason.INVALID_SECRET))
    return secret[ACCESS_KEY].decode().strip(), secret[SECRET_KEY].decode().strip()


def _clients(wanted: S3, account: tuple[str, str], authority: str | None) -> tuple[Any, Any]:
    """Client for what moves data, and one for questions."""
    # (name in the file, name in the environment, default, conversion): neither is looked at.
    alone = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
    }
    session = botocore.session.Session(session_vars=alone)
    session = boto3.session.Session(botocore_session=session)
    first, second = (
        _client(session, wanted, account, authority, *patience)
        for patience in ((READ_SECONDS, ATTEMPTS), (ASK_SECONDS, ASK_ATTEMPTS))
    )
    return first, second


def _client(
    session: Any, wanted: S3, account: tuple[str, str], authority: str | None, seconds: float, attempts: int
) -> Any:
    config = botocore.config.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=seconds,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
        ignore_configured_endpoint_urls=True,
    )
    return session.client(
        "s3",
        region_name=wanted.region,
        endpoint_url=wanted.endpoint or None,
        aws_access_key_id=account[0],
        aws_secret_access_key=account[1],
        verify=authority or True,
        config=config,
    )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _words(error: Any) -> str:
    found = error.response.get("Error", {})
    return f"{error.operation_name}: {found.get('Message') or 'refused'} ({_code(error)})"
