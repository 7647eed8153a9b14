"""Maps a request's credential to a principal. Never waits: the key directory is in memory."""

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
    """The credential of a client: a session keeps it, and each of its requests is checked."""

    digest: bytes
    """Digest of the secret, which is not stored."""
    organization: str = ""
    """The tenant that it names with the key; empty: none."""
    project: str = ""
    """The project that it names, by id or name; empty: none."""


class Authenticator(Protocol):
    """Identifies the caller of a request."""

    def read(self, fields: Fields) -> Credential:
        """Return the credential in a request's fields.

        Raises:
            BatonError: INVALID_API_KEY: there is no key.
        """
        ...

    def admit(self, credential: Credential) -> Principal:
        """Return the principal of a credential, as of now.

        Raises:
            BatonError: INVALID_API_KEY; PERMISSION_DENIED if another tenant or project is named.
        """
        ...

    def recall(self, key: str) -> Principal:
        """Return the principal of a key, by its id, as of now: a request of it goes on.

        Raises:
            BatonError: INVALID_API_KEY.
        """
        ...


class NoAuthentication:
    """Treats every caller as the single tenant (`auth.mode` off). Keys sent by clients are
    ignored."""

    _nothing = Credential(b"")

    def read(self, fields: Fields) -> Credential:  # noqa: ARG002
        return self._nothing

    def admit(self, credential: Credential) -> Principal:  # noqa: ARG002
        return LOCAL

    def recall(self, key: str) -> Principal:  # noqa: ARG002
        return LOCAL


class KeyAuthentication:
    """Admits callers with a key of the directory (`auth.mode` keys). Lives on the event loop.

    Args:
        directory: of keys; kept current by its owner.
        uses: records which keys were used.
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

    def recall(self, key: str) -> Principal:
        found = self._directory.keys.get(key)
        return self._directory.authenticate(b"" if found is None else found.sha256, self._clock())


def tenant_weight(authenticator: Authenticator, key: str) -> int:
    """Return the weight of the tenant of a key; 1 if the key is not valid any more."""
    try:
        return authenticator.recall(key).tenant.weight or 1
    except BatonError:
        return 1


def _secret(value: bytes) -> bytes:
    size = len(_SCHEME)
    if value[:size].lower() != _SCHEME:
        return b""
    # A longer one cannot exist, and is rejected like any unknown one.
    return value[size : size + MAX_SECRET_CHARACTERS].strip()


def _not_yours(field: bytes, what: str) -> BatonError:
    name = field.decode()
    return BatonError(
        Reason.PERMISSION_DENIED,
        f"{name}: the API key belongs to another {what}: omit the header",
        field=name,
    )
