"""The processes of a local cluster and their settings. Pure."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from baton.cli.cluster.local.models.local_model import ROLES, LocalModel
from baton.cli.cluster.local.models.workers import pinned, share_cores, worker_specs
from baton.cli.cluster.local.on_demand.room import OnDemandRoom, largest
from baton.cli.cluster.local.scaling.bounds import PoolBounds
from baton.cli.cluster.local.spec import ProcessSpec, StopOrder
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.host.priority import can_add_niceness
from baton.settings.models import MAX_WORKERS

HOST = "127.0.0.1"
WILDCARDS = ("0.0.0.0", "::")
"""Addresses that stand for all addresses of the machine."""
SMALL_MEMORY = "64MiB"
_NICE = "BATON_ENGINE_NICE"
_SHARED_NICENESS = "5"
"""Niceness of decode threads on cores that also compute prompts; measured in
docs/performance.md."""


def plan(
    options: ClusterOptions,
    models: Sequence[LocalModel],
    etcd: Sequence[str],
    cores: Sequence[int],
    bounds: PoolBounds | None = None,
    memory: Mapping[str, str] = MappingProxyType({}),
    frontend: Mapping[str, str] = MappingProxyType({}),
    on_shared_cores: Mapping[str, str] = MappingProxyType({}),
    router: Mapping[str, str] = MappingProxyType({}),
    room: OnDemandRoom | None = None,
) -> tuple[ProcessSpec, ...]:
    """Return the processes of a cluster, except etcd.

    Args:
        options: options of the cluster.
        models: the models to serve, each with its workers.
        etcd: etcd's endpoints.
        cores: cores that the engines share.
        bounds: of each pool of workers; None: their number does not change.
        memory: settings for the memory of engines and stores, as `small_memory` returns.
        frontend: settings of the frontends.
        on_shared_cores: settings of decode workers that compute on the cores of prefill workers.
        router: settings of the router.
        room: models that have workers at the same time; None: all.

    Raises:
        CommandError: the options describe no working cluster.
    """
    _check(options)
    models = [scaled(model, bounds) for model in models]
    shared = shared_settings(options, etcd)
    inner = inner_settings(options, etcd, memory)
    front = (
        shared
        | dict(frontend)
        | {
            "BATON_HTTP_PORT": str(options.http_port),
            "BATON_GRPC_PORT": str(options.grpc_port),
            "BATON_AUTH_MODE": options.auth,
            "OMP_NUM_THREADS": "1",
        }
    )
    if options.host:
        front |= {"BATON_HTTP_HOST": options.host, "BATON_GRPC_HOST": options.host}
        if options.host in WILDCARDS:  # addresses at which they are reached from this machine
            front["BATON_ADVERTISE_HOST"] = HOST
    if options.grpc_reflection:
        front["BATON_GRPC_REFLECTION"] = "true"
    if options.conversations:
        front["BATON_CONVERSATIONS_ENABLED"] = "true"
    if options.webhooks:
        front["BATON_WEBHOOKS_ENABLED"] = "true"
    if options.frontends > 1:
        front |= {"BATON_HTTP_REUSE_PORT": "true", "BATON_GRPC_REUSE_PORT": "true"}
    threads = share_cores(len(cores), largest(models, room), options.pin)
    engines: list[ProcessSpec] = []
    for model in models:
        first = {role: sum(spec.role == role for spec in engines) for role in ROLES}
        engines += worker_specs(model, inner, threads, on_shared_cores, first)
    # The readers of its KV have stopped before it: there is no one left to serve.
    store = inner | {"BATON_STORE_DRAIN_QUIET_SECONDS": "0"}
    if options.pin:
        engines = pinned(engines, cores, threads.own)
    return (
        *_several("kvstore", 1, "kvstore", StopOrder.STORES, store),
        *_several("router", 1, "router", StopOrder.WORKERS, inner | dict(router)),
        *engines,
        *_several("frontend", options.frontends, "frontend", StopOrder.FRONTENDS, front),
    )


def shared_settings(options: ClusterOptions, etcd: Sequence[str]) -> dict[str, str]:
    """Return the settings of all processes of a cluster."""
    shared = {
        "BATON_ETCD_ENDPOINTS": ",".join(etcd),
        "BATON_ETCD_CLUSTER": options.cluster,
        "BATON_OPS_PORT": "0",
    }
    if options.config is not None:
        shared["BATON_CONFIG"] = str(options.config.absolute())
    return shared


def inner_settings(
    options: ClusterOptions, etcd: Sequence[str], memory: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of processes that clients do not reach.

    The environment's address is that of the frontend: these listen on this machine only.
    """
    return {
        **shared_settings(options, etcd),
        **memory,
        "BATON_GRPC_HOST": HOST,
        "BATON_GRPC_PORT": "0",
        "BATON_ADVERTISE_HOST": "",
        "OMP_NUM_THREADS": "1",
    }


def scaled(model: LocalModel, bounds: PoolBounds | None) -> LocalModel:
    """Return a model with as many workers of each of its roles as it may have."""
    if bounds is None:
        return model
    most = bounds.most
    return replace(
        model,
        prefill=model.prefill and most,
        decode=model.decode and most,
        combined=model.combined and most,
    )


def small_memory(given: Collection[str]) -> dict[str, str]:
    """Return settings for a tiny model, except those given: touching memory takes time."""
    names = ("BATON_ENGINE_KV_BYTES", "BATON_STORE_ARENA_BYTES")
    return {name: SMALL_MEMORY for name in names if name not in given}


def shared_niceness(given: Collection[str]) -> dict[str, str]:
    """Return the setting of decode workers that share cores, unless it is given."""
    return {} if _NICE in given or not can_add_niceness() else {_NICE: _SHARED_NICENESS}


def available_cores() -> tuple[int, ...]:
    """Return the numbers of the CPU cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def _several(
    role: str, count: int, service: str, stop: StopOrder, settings: Mapping[str, str]
) -> Iterator[ProcessSpec]:
    for index in range(count):
        identity = f"{role}-{index}"
        full = {**settings, "BATON_INSTANCE_ID": identity}
        yield ProcessSpec(identity, service, stop, MappingProxyType(full))


def _check(options: ClusterOptions) -> None:
    if not 1 <= options.frontends <= MAX_WORKERS:
        raise CommandError(
            f"--frontends is {options.frontends}: it must be from 1 to {MAX_WORKERS}."
        )
    if options.http_port == options.grpc_port != 0:
        raise CommandError(
            f"HTTP and gRPC cannot share port {options.http_port}: set another --http-port or "
            "--grpc-port."
        )
