"""The table of which role may call, and which may serve, each method.

It applies when processes present certificates to each other. Methods not listed may not be called.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from baton.errors import BatonError, Reason
from baton.rpc.tls.identity import ROLES, Peer
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter

log = get_logger(__name__)

DENIED = Counter(
    "baton_rpc_denied_total",
    "Calls rejected because the peer's certificate names no role that may make them, by method "
    "and by the roles that it names.",
    ["method", "roles"],
)
WORKERS = frozenset({"prefill", "decode"})


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """The roles that take part in a service."""

    servers: frozenset[str]
    """Roles of which a server of it must have one."""
    callers: Mapping[str, frozenset[str]]
    """By method, roles that may call it; `*` matches every method not listed."""


def _service(servers: frozenset[str] | set[str], **callers: str) -> ServiceAccess:
    """Return the access to a service: methods, each with the roles that may call it."""
    return ServiceAccess(frozenset(servers), {k: frozenset(v.split()) for k, v in callers.items()})


ACCESS: Mapping[str, ServiceAccess] = {
    "baton.internal.v1.WorkerService": _service(
        WORKERS,
        Run="frontend",
        GetTokenizer="frontend",
        WatchLoad="router operator",
    ),
    "baton.internal.v1.RouterService": _service(
        {"router"},
        Place="frontend",
        Explain="operator",
        Outlook="picker operator",
    ),
    "baton.internal.v1.KvEventService": _service(
        {"kvstore"} | WORKERS,
        Watch="router",
    ),
    "baton.internal.v1.KvStoreService": _service(
        {"kvstore"},
        Attach="prefill decode kvstore operator",
        Put="prefill decode operator",  # `baton kv` attaches as workers do
        Get="prefill decode kvstore operator",
        Lookup="prefill decode operator",
        List="operator",
        Drop="operator",
        Stat="operator",
    ),
    "grpc.health.v1.Health": ServiceAccess(ROLES, {"*": ROLES}),
    "grpc.reflection.v1.ServerReflection": ServiceAccess(ROLES, {"*": frozenset({"operator"})}),
    "grpc.reflection.v1alpha.ServerReflection": ServiceAccess(
        ROLES, {"*": frozenset({"operator"})}
    ),
}

_NOBODY = ServiceAccess(frozenset(), {})


def may_call(peer: Peer, path: str) -> bool:
    """Return whether a peer may call `/package.Service/Method`."""
    _, service, method = path.split("/")
    callers = ACCESS.get(service, _NOBODY).callers
    return bool(peer.roles & callers.get(method, callers.get("*", frozenset())))


def may_serve(peer: Peer, path: str) -> bool:
    """Return whether a peer may be the server of `/package.Service/Method`."""
    return bool(peer.roles & ACCESS.get(path.split("/")[1], _NOBODY).servers)


def denial(peer: Peer, path: str) -> BatonError:
    """Return the error for a caller that may not call a method; the denial is counted and
    logged."""
    roles = ",".join(sorted(peer.roles)) or "none"
    DENIED.labels(path, roles).inc()
    log.warning("rpc.call.denied", method=path, peer=str(peer), roles=roles)
    return BatonError(
        Reason.PERMISSION_DENIED,
        f"{path} is not allowed for the role of this certificate ({str(peer)[:200]})",
    )
