"""A model in a bucket of Amazon S3, or of a server with its API.

botocore finds credentials, signs, and lists. Files are requested by URLs that it signs, as any
other source's, so that redirects, deadlines and lengths are checked alike.
"""

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.session import Session

from baton.engine.checkpoint.record import MAX_FILES, RECORD, parse_record
from baton.engine.support.documents import CheckpointError
from baton.models.digests import Digest, DigestKind
from baton.models.errors import PullError, TransientError
from baton.models.limits import PullLimits
from baton.models.sources.http import SourceClient
from baton.models.sources.manifest import SUMS, parse_sums
from baton.models.sources.names import parse_bucket
from baton.models.sources.source import FileBody, ModelListing, RemoteFile, list_revision

_SIGNED_SECONDS = 900
_FULL: tuple[tuple[str, DigestKind], ...] = (
    ("ChecksumSHA256", "sha256"),
    ("ChecksumSHA1", "sha1"),
)
"""Checksums of whole objects, the best first. CRC-32 comes last, after the MD5 in the ETag."""
_PARTS: tuple[tuple[str, DigestKind], ...] = (
    ("ChecksumSHA256", "sha256-parts"),
    ("ChecksumSHA1", "sha1-parts"),
)
"""Checksums of the checksums of an upload's parts."""
_EXPRESS = "--x-s3"
"""Ends the names of directory buckets, whose ETags are no digests."""


class BucketSource:
    """Objects under a prefix.

    Their digests are those of a completion record or a SHA256SUMS among them, else S3's own.

    Args:
        name: `s3://bucket/prefix`.
        endpoint: of the server; empty: what botocore's settings say, else Amazon's.
        limits: of the download.
        credentials: file with keys in AWS's format; None: where botocore looks for them.

    Raises:
        PullError: the name is none, or botocore's settings or credentials cannot be used.
    """

    def __init__(
        self, name: str, endpoint: str, limits: PullLimits, credentials: Path | None = None
    ) -> None:
        self.name = self.identity = name
        self.requested = ""
        self._bucket, self._prefix = parse_bucket(name)
        self._limits = limits
        try:
            with _sentences(name):
                self._s3: Any = _open(endpoint, limits, credentials)
        except TransientError as error:
            raise PullError(f"{name} cannot be read: no credentials: {error}.") from error
        self._client = SourceClient(
            limits,
            self._s3.meta.endpoint_url,
            denied="the credentials may not read it; S3 also says so of what does not exist.",
        )

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the objects under the prefix; errors as `ModelSource.list_files`."""
        with _sentences(self.name):
            objects = self._objects()
        listed = self._listed(objects)
        wanted = [path for path in objects if wants(path) and (listed is None or path in listed)]
        if missing := {path for path in listed or () if wants(path)} - set(wanted):
            raise PullError(f"{self.name} has no {min(missing)}, which its list of files names.")
        if listed is not None:
            digests = [Digest("sha256", listed[path]) for path in wanted]
        else:
            with _sentences(self.name), ThreadPoolExecutor(self._limits.parallel) as pool:
                digests = list(pool.map(lambda path: self._digest(path, objects[path]), wanted))
        files = tuple(
            RemoteFile(path, objects[path], digest)
            for path, digest in zip(wanted, digests, strict=True)
        )
        return ModelListing(self.name, list_revision(files), files)

    @contextmanager
    def open(self, file: RemoteFile, offset: int) -> Iterator[FileBody]:
        """Request an object; errors as `ModelSource.open`."""
        with self._client.body(self._url(file.path), file.path, offset, file.size) as body:
            yield body

    def close(self) -> None:
        """Close connections."""
        self._client.close()
        self._s3.close()

    def _objects(self) -> dict[str, int]:
        """Return the bytes of each object, by its path below the prefix."""
        found: dict[str, int] = {}
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix
        )
        for page in pages:
            for one in page.get("Contents", ()):
                path = one["Key"].removeprefix(self._prefix)
                if path and not path.endswith("/"):
                    found[path] = one["Size"]
            if len(found) > MAX_FILES:
                raise PullError(
                    f"{self.name} has more than {MAX_FILES} objects: name the prefix of one model."
                )
        if not found:
            raise PullError(f"{self.name} has no objects: check the bucket and the prefix.")
        return found

    def _listed(self, objects: Mapping[str, int]) -> dict[str, str] | None:
        """Return the SHA-256 of each file, by a list among the objects; None: there is none."""
        if RECORD in objects:
            data = self._client.read(self._url(RECORD), RECORD) or b""
            try:
                record = parse_record(data, f"{RECORD} of {self.name}")
            except CheckpointError as error:
                raise PullError(str(error)) from error
            return {file.path: file.sha256 for file in record.files}
        if SUMS in objects:
            return parse_sums(self._client.read(self._url(SUMS), SUMS) or b"", self.name)
        return None

    def _digest(self, path: str, size: int) -> Digest:
        """Return S3's digest of an object.

        Raises:
            PullError: it has none that can be computed.
        """
        head = self._head(path, ChecksumMode="ENABLED")
        for name, kind in _FULL:
            if "-" not in head.get(name, "-"):
                return Digest(kind, b64decode(head[name]).hex())
        tag = head.get("ETag", "").strip('"').lower()
        is_digest = self._has_md5(head)
        if is_digest and len(tag) == 32 and tag.isalnum():
            return Digest("md5", tag)
        for name, kind in _PARTS:
            value, _, count = head.get(name, "").partition("-")
            if count.isdigit():
                return self._parts(path, size, Digest(kind, b64decode(value).hex()), int(count))
        value, _, count = tag.partition("-")
        if is_digest and count.isdigit() and len(value) == 32:
            return self._parts(path, size, Digest("md5-parts", value), int(count))
        if "-" not in head.get("ChecksumCRC32", "-"):
            return Digest("crc32", b64decode(head["ChecksumCRC32"]).hex())
        raise PullError(self._no_digest(path))

    def _has_md5(self, head: Mapping[str, Any]) -> bool:
        """Return whether an object's ETag comes from its MD5: not with other people's keys."""
        encrypted = head.get("ServerSideEncryption", "AES256") != "AES256"
        own_key = "SSECustomerAlgorithm" in head
        return not (encrypted or own_key or self._bucket.endswith(_EXPRESS))

    def _parts(self, path: str, size: int, digest: Digest, count: int) -> Digest:
        """Return a digest of parts with the bytes of a part, which the first part tells."""
        part = self._head(path, PartNumber=1)["ContentLength"]
        if part < 1 or -(-size // part) != count:
            raise PullError(self._no_digest(path))
        return replace(digest, part_bytes=part)

    def _head(self, path: str, **options: object) -> Mapping[str, Any]:
        head: Mapping[str, Any] = self._s3.head_object(
            Bucket=self._bucket, Key=self._prefix + path, **options
        )
        return head

    def _no_digest(self, path: str) -> str:
        return (
            f"{self.name} has no digest of {path} that can be checked: put a {SUMS} next to it, as "
            f"`sha256sum * > {SUMS}` writes it in the directory that was uploaded."
        )

    def _url(self, path: str) -> str:
        """Return a URL by which an object can be read for 15 minutes."""
        with _sentences(self.name):
            url: str = self._s3.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": self._prefix + path},
                ExpiresIn=_SIGNED_SECONDS,
            )
        return url


def _open(endpoint: str, limits: PullLimits, credentials: Path | None) -> Any:
    session = Session()
    if credentials is not None:
        session.set_config_variable("credentials_file", str(credentials))
    anonymous = session.get_credentials() is None
    return session.create_client(
        "s3", endpoint_url=endpoint or None, config=_config(limits, anonymous)
    )


def _config(limits: PullLimits, anonymous: bool) -> Config:
    return Config(
        signature_version=UNSIGNED if anonymous else "s3v4",
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        # Attempts are counted where they are of every source.
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=limits.parallel,
        # A signed URL would need headers for checksums that are only of whole objects.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


@contextmanager
def _sentences(name: str) -> Iterator[None]:
    """Turn botocore's errors into sentences; none of them has a secret."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or status == 429 or code in _BUSY:
            raise TransientError(f"S3 answers {code or status}") from error
        told = _CODES.get(code, "see the server's log.")
        raise PullError(
            f"{name} cannot be read: S3 answers {code or 'an error'}: {told}"
        ) from error
    except (HTTPClientError, BotoConnectionError, IncompleteReadError) as error:
        raise TransientError(_kind(error)) from error
    except BotoCoreError as error:
        raise PullError(f"{name} cannot be read: {_kind(error)}.") from error


_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_SHARED_CREDENTIALS_FILE or AWS_PROFILE "
    "to credentials that may read it."
)
_CODES = {
    "AccessDenied": _CREDENTIALS,
    "403": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": "renew the credentials.",
    "NoSuchBucket": "check the bucket's name, and --endpoint.",
    "NoSuchKey": "it is not there.",
    "404": "it is not there.",
    "PermanentRedirect": "set AWS_REGION to the region of the bucket.",
    "AuthorizationHeaderMalformed": "set AWS_REGION to the region of the bucket.",
}
_BUSY = ("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "InternalError")


def _kind(error: BotoCoreError) -> str:
    """Return what failed, as words; messages of botocore may have URLs."""
    return {
        "EndpointConnectionError": "the server does not accept connections; check --endpoint",
        "ConnectTimeoutError": "the server does not accept connections; check --endpoint",
        "ReadTimeoutError": "the server sent nothing for too long",
        "ConnectionClosedError": "the server ended the connection too early",
        "IncompleteReadError": "the server ended the connection too early",
        "SSLError": "the server's certificate cannot be verified; set AWS_CA_BUNDLE",
        "ProfileNotFound": "AWS_PROFILE names a profile that does not exist",
        "PartialCredentialsError": "the credentials are not complete",
        "NoCredentialsError": "there are no credentials",
        "ParamValidationError": "the bucket's name is not allowed",
    }.get(type(error).__name__, f"botocore reports {type(error).__name__}")
