"""Names of models in addresses: of repositories, buckets, claims and images."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from baton.models.errors import PullError

FORMS = (
    "hf://ORGANIZATION/NAME[@REVISION], s3://BUCKET/PREFIX, https://HOST/DIRECTORY, or a directory"
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_REVISION = re.compile(r"[\w.][\w./+-]{0,254}", re.ASCII)


class HubName(NamedTuple):
    """A model on a hub."""

    repository: str
    revision: str
    """A branch, a tag or a commit."""


def scheme_of(address: str) -> str:
    """Return the scheme of an address; empty: it is a path."""
    scheme, colon, _ = address.partition("://")
    return scheme.lower() if colon else ""


def after_scheme(address: str) -> str:
    """Return what follows the scheme of an address."""
    return address.partition("://")[2]


def parse_hub(address: str) -> HubName:
    """Return the model that `hf://ORGANIZATION/NAME[@REVISION]` names.

    Raises:
        PullError: it names none.
    """
    repository, at, revision = after_scheme(address).partition("@")
    name = HubName(repository, revision if at else "main")
    if not _REPOSITORY.fullmatch(name.repository) or not _REVISION.fullmatch(name.revision):
        raise PullError(f"{address!r} is not hf://ORGANIZATION/NAME or …/NAME@REVISION.")
    return name


def parse_bucket(address: str) -> tuple[str, str]:
    """Return the bucket and the prefix that `s3://BUCKET/PREFIX` names; the prefix ends in `/`.

    Raises:
        PullError: it names none.
    """
    bucket, _, prefix = after_scheme(address).partition("/")
    if not bucket:
        raise PullError(f"{address!r} is not s3://BUCKET/PREFIX.")
    return bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""


def check_url(url: str, what: str) -> None:
    """Check that a URL has a host and no secret: addresses are in process lists and logs.

    Raises:
        PullError: it has none, or one.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("https", "http") and bool(parts.hostname)
        secret = "@" in parts.netloc or bool(parts.query) or bool(parts.fragment)
    except ValueError:
        known, secret = False, False
    if secret:
        raise PullError(
            f"{what} has a password, a query or a fragment, which process lists and logs would "
            "show: set --token-file to a token, or AWS's variables."
        )
    if not known:
        raise PullError(f"{what} is {url!r}, which is not an https:// address.")
