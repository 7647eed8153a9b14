"""Whose key a request has. Nothing here waits: the directory of keys is in memory."""

from collections.abc import Callable, Iterable
from time import time
from typing import Protocol

import msgspec

from baton.errors import BatonError, Reason
from baton.tenancy.directory.directory import NO_KEY, Directory, refused
from baton.tenancy.directory.principal import LOCAL, Principal
from baton.tenancy.directory.uses import LastUses
from baton.tenancy.records.secret import MAX_SECRET_CHARACTERS, digest_of

Fields = Iterable[tuple[bytes, bytes]]
"""Header fields or metadata, with names in lower case."""

_AUTHORIZATION = b"authorization"
_ORGANIZATION = b"openai-organization"
_PROJECT = b"openai-project"
_SCHEME = b"bearer "


class Credential(msgspec.Struct, frozen=True, gc=False):
    """What a client showed of itself: a session keeps it, and each of its requests is checked."""

    digest: bytes
    """Of the secret, which is kept nowhere."""
    organization: str = ""
    """The tenant that it names beside the key; empty: none."""
    project: str = ""
    """The project, likewise, by id or name."""


class Authenticator(Protocol):
    """Tells who asks."""

    def read(self, fields: Fields) -> Credential:
        """Return what a request's fields show.

        Raises:
            BatonError: INVALID_API_KEY, there is no key.
        """
        ...

    def admit(self, credential: Credential) -> Principal:
        """Return whose it is, now.

        Raises:
            BatonError: INVALID_API_KEY; PERMISSION_DENIED where another tenant or project is named.
        """
        ...


class NoAuthentication:
    """Takes everybody for the one tenant (`auth.mode` off). What clients send as a key is not
    looked at."""

    _nothing = Credential(b"")

    def read(self, fields: Fields) -> Credential:  # noqa: ARG002
        return self._nothing

    def admit(self, credential: Credential) -> Principal:  # noqa: ARG002
        return LOCAL


class KeyAuthentication:
    """Takes who shows a key of the directory (`auth.mode` keys). Lives on the event loop.

    Args:
        directory: of keys, which its owner keeps true.
        uses: hears which keys were taken.
        clock: returns seconds since the Unix epoch.
    """

    def __init__(
        self, directory: Directory, uses: LastUses, clock: Callable[[], float] = time
    ) -> None:
        self._directory = directory
        self._uses = uses
        self._clock = clock

    def read(self, fields: Fields) -> Credential:
        secret: bytes | None = None
        organization = project = ""
        for name, value in fields:
            if name == _AUTHORIZATION:
                if secret is not None:
                    raise refused("the request has several 'authorization' headers: send one")
                secret = _secret(value)
            elif name == _ORGANIZATION:
                organization = value.decode("latin-1")
            elif name == _PROJECT:
                project = value.decode("latin-1")
        if not secret:
            raise refused(NO_KEY)
        return Credential(digest_of(secret), organization, project)

    def admit(self, credential: Credential) -> Principal:
        now = self._clock()
        principal = self._directory.authenticate(credential.digest, now)
        if credential.organization not in ("", principal.tenant.id):
            raise _not_yours(_ORGANIZATION, "tenant")
        if credential.project not in ("", principal.project.id, principal.project.name):
            raise _not_yours(_PROJECT, "project")
        self._uses.note(principal.key.id, now)
        return principal


def _secret(value: bytes) -> bytes:
    size = len(_SCHEME)
    if value[:size].lower() != _SCHEME:
        return b""
    # A longer one is nobody's, and is refused like every other that is not known.
    return value[size : size + MAX_SECRET_CHARACTERS].strip()


def _not_yours(field: bytes, what: str) -> BatonError:
    name = field.decode()
    return BatonError(
        Reason.PERMISSION_DENIED,
        f"{name}: the API key belongs to another {what}: omit the header",
        field=name,
    )
