"""The identity of a peer, taken from its certificate.

Processes call each other at addresses that change, so host names are not verified. Instead, a
certificate names a role in a trust domain (`tls.trust_domain`):

- one SPIFFE id, `spiffe://DOMAIN/…/ROLE`: the last segment of its path is the role, or
- DNS names `ROLE.DOMAIN`, one per role. They count only where there is no SPIFFE id.

Names of other domains, and all other kinds of names, are ignored.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass

ROLES = frozenset({"frontend", "router", "prefill", "decode", "kvstore", "picker", "operator"})
"""The roles of a cluster's processes; `operator` is a user of the `baton` commands."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process on the other side of a connection."""

    roles: frozenset[str]
    """Roles of the peer; empty: its certificate names none."""
    names: tuple[str, ...]
    """Names in its certificate, for messages."""

    def __str__(self) -> str:
        return ", ".join(self.names) or "a certificate without names"


def peer_of(tls: ssl.SSLObject, trust_domain: str) -> Peer:
    """Return the identity of the peer, whose certificate was verified."""
    certificate = tls.getpeercert() or {}
    names = certificate.get("subjectAltName", ())
    return peer_named([(str(name[0]), str(name[1])) for name in names], trust_domain)


def peer_named(names: Iterable[tuple[str, str]], trust_domain: str) -> Peer:
    """Return the identity with these names.

    Args:
        names: kind (`DNS`, `URI`, …) and value of each.
        trust_domain: the domain of role names.
    """
    names = tuple(names)
    ids = [name for kind, name in names if kind == "URI" and name.startswith("spiffe://")]
    if ids:
        roles = {_spiffe_role(ids[0], trust_domain)} if len(ids) == 1 else set()
    else:
        roles = {_dns_role(name, trust_domain) for kind, name in names if kind == "DNS"}
    return Peer(ROLES & roles, tuple(f"{kind}:{name}" for kind, name in names))


def _spiffe_role(name: str, trust_domain: str) -> str:
    domain, _, path = name.removeprefix("spiffe://").partition("/")
    return path.rpartition("/")[2] if domain == trust_domain else ""


def _dns_role(name: str, trust_domain: str) -> str:
    role, _, domain = name.lower().partition(".")
    return role if domain == trust_domain else ""
