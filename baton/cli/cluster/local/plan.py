"""The processes of a local cluster and their settings. Pure."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

from baton.cli.cluster.local.scaling.bounds import parse_bounds
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.host.priority import can_add_niceness

MAX_WORKERS = 64
WORKER_ROLES = ("prefill", "decode", "combined")
HOST = "127.0.0.1"
WILDCARDS = ("0.0.0.0", "::")
"""Addresses that stand for all addresses of the machine."""
SMALL_MEMORY = "64MiB"
_NICE = "BATON_ENGINE_NICE"
_SHARED_NICENESS = "5"
"""Niceness of decode threads on cores that also compute prompts; measured in
docs/performance.md."""


class StopOrder(IntEnum):
    """The order in which a cluster is stopped: clients before servers."""

    FRONTENDS = 1
    WORKERS = 2
    STORES = 3


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to run."""

    id: str
    service: str
    """Run as `baton serve <service>`."""
    stop: StopOrder
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, in addition to those of `baton`."""


def plan(
    options: ClusterOptions,
    model: Path,
    etcd: Sequence[str],
    cores: Sequence[int],
    memory: Mapping[str, str] = MappingProxyType({}),
    frontend: Mapping[str, str] = MappingProxyType({}),
    on_shared_cores: Mapping[str, str] = MappingProxyType({}),
    router: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ProcessSpec, ...]:
    """Return the processes of a cluster, except etcd.

    Args:
        options: options of the cluster.
        model: the checkpoint's directory.
        etcd: etcd's endpoints.
        cores: cores that the engines share.
        memory: settings for the memory of engines and stores, as `small_memory` returns.
        frontend: settings of the frontends.
        on_shared_cores: settings of decode workers that compute on the cores of prefill workers.
        router: settings of the router.

    Raises:
        CommandError: the options describe no working cluster.
    """
    _check(options)
    options = scaled_options(options)
    name = options.model_name or model.name
    shared = {
        "BATON_ETCD_ENDPOINTS": ",".join(etcd),
        "BATON_ETCD_CLUSTER": options.cluster,
        "BATON_OPS_PORT": "0",
    }
    if options.config is not None:
        shared["BATON_CONFIG"] = str(options.config.absolute())
    # The environment's address is that of the frontend: other processes listen on this machine
    # only.
    inner = (
        shared
        | dict(memory)
        | {
            "BATON_GRPC_HOST": HOST,
            "BATON_GRPC_PORT": "0",
            "BATON_ADVERTISE_HOST": "",
            "OMP_NUM_THREADS": "1",
        }
    )
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
    if options.frontends > 1:
        front |= {"BATON_HTTP_REUSE_PORT": "true", "BATON_GRPC_REUSE_PORT": "true"}
    threads = engine_threads(len(cores), options.prefill + options.decode + options.combined)
    of_prefill = of_decode = threads
    if not options.pin:
        of_prefill = engine_threads(len(cores), options.prefill)
        if options.engine == "torch":  # other engines' threads never wait for one without a core
            of_decode = engine_threads(len(cores), options.decode)
    worker = inner | {
        "BATON_KV_STORE_ID": "kvstore-0",
        "BATON_ENGINE_MODEL": str(model),
        "BATON_ENGINE_MODEL_NAME": name,
        "BATON_ENGINE_DTYPE": options.dtype,
        "BATON_ENGINE_KIND": options.engine,
    }
    engines = [
        *_several(
            "prefill",
            options.prefill,
            "prefill",
            StopOrder.WORKERS,
            worker | _threads(of_prefill, own=threads),
        ),
        *_several(
            "decode",
            options.decode,
            "decode",
            StopOrder.WORKERS,
            worker
            | _threads(threads, own=threads, native=of_decode)
            | (dict(on_shared_cores) if of_decode > threads and options.prefill else {}),
        ),
        *_several(
            "combined",
            options.combined,
            "decode",
            StopOrder.WORKERS,
            worker | _threads(threads, own=threads),
        ),
    ]
    # The readers of its KV have stopped before it: there is no one left to serve.
    store = inner | {"BATON_STORE_DRAIN_QUIET_SECONDS": "0"}
    if options.pin:
        engines = _pinned(engines, cores, threads)
    return (
        *_several("kvstore", 1, "kvstore", StopOrder.STORES, store),
        *_several("router", 1, "router", StopOrder.WORKERS, inner | dict(router)),
        *engines,
        *_several("frontend", options.frontends, "frontend", StopOrder.FRONTENDS, front),
    )


def scaled_options(options: ClusterOptions) -> ClusterOptions:
    """Return options with as many workers of each role as the cluster may have.

    Raises:
        CommandError: --autoscale has no such value.
    """
    bounds = parse_bounds(options.autoscale, MAX_WORKERS)
    if bounds is None:
        return options
    most = bounds.most
    return replace(
        options,
        prefill=options.prefill and most,
        decode=options.decode and most,
        combined=options.combined and most,
    )


def pools_of(specs: Sequence[ProcessSpec]) -> dict[str, list[str]]:
    """Return the ids of the workers of each role, in their order."""
    pools: dict[str, list[str]] = {}
    for spec in specs:
        role = spec.id.rpartition("-")[0]
        if role in WORKER_ROLES:
            pools.setdefault(role, []).append(spec.id)
    return pools


def small_memory(given: Collection[str]) -> dict[str, str]:
    """Return settings for a tiny model, except those given: touching memory takes time."""
    names = ("BATON_ENGINE_KV_BYTES", "BATON_STORE_ARENA_BYTES")
    return {name: SMALL_MEMORY for name in names if name not in given}


def shared_niceness(given: Collection[str]) -> dict[str, str]:
    """Return the setting of decode workers that share cores, unless it is given."""
    return {} if _NICE in given or not can_add_niceness() else {_NICE: _SHARED_NICENESS}


def engine_threads(cores: int, workers: int) -> int:
    """Return the compute threads of each engine: about one per core in total."""
    return max(1, cores // max(1, workers))


def _threads(count: int, *, own: int, native: int = 0) -> dict[str, str]:
    """Return settings of an engine's compute threads.

    Args:
        count: number of threads. Torch's wait for each other a hundred times a step.
        own: cores reserved for this engine. With more threads torch's sleep while they wait: by
            default they spin for milliseconds.
        native: threads of the compiled operators, which never wait for a thread without a core; 0:
            `count`.
    """
    settings = {"BATON_ENGINE_THREADS": str(count), "OMP_NUM_THREADS": str(count)}
    if native > count:
        settings["BATON_ENGINE_NATIVE_THREADS"] = str(native)
    if max(count, native) > own:
        settings["OMP_WAIT_POLICY"] = "passive"
    return settings


def available_cores() -> tuple[int, ...]:
    """Return the numbers of the CPU cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def summary(specs: Sequence[ProcessSpec]) -> str:
    """Return the number of processes by role: `1 frontend, 2 prefill, …`."""
    roles = [spec.id.rpartition("-")[0] for spec in specs]
    return ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles))


def _pinned(
    engines: Sequence[ProcessSpec], cores: Sequence[int], threads: int
) -> list[ProcessSpec]:
    """Return the engines, each with separate CPU cores."""
    if len(engines) * threads > len(cores):
        raise CommandError(
            f"--pin needs a core for each of {len(engines)} workers, and this machine has "
            f"{len(cores)}: start fewer workers, or remove --pin."
        )
    pinned = []
    for number, spec in enumerate(engines):
        own = cores[number * threads : (number + 1) * threads]
        settings = {**spec.settings, "BATON_ENGINE_CORES": ",".join(map(str, own))}
        pinned.append(replace(spec, settings=MappingProxyType(settings)))
    return pinned


def _several(
    role: str, count: int, service: str, stop: StopOrder, settings: Mapping[str, str]
) -> Iterator[ProcessSpec]:
    own = {"BATON_ROLE": role} if service in ("prefill", "decode") else {}
    for index in range(count):
        identity = f"{role}-{index}"
        full = {**settings, **own, "BATON_INSTANCE_ID": identity}
        yield ProcessSpec(identity, service, stop, MappingProxyType(full))


def _check(options: ClusterOptions) -> None:
    for role in WORKER_ROLES:
        count = getattr(options, role)
        if not 0 <= count <= MAX_WORKERS:
            raise CommandError(f"--{role} is {count}: it must be from 0 to {MAX_WORKERS}.")
    if not 1 <= options.frontends <= MAX_WORKERS:
        raise CommandError(
            f"--frontends is {options.frontends}: it must be from 1 to {MAX_WORKERS}."
        )
    if options.decode + options.combined == 0:
        raise CommandError(
            "The cluster has no decode worker: set at least --decode 1 or --combined 1."
        )
    if options.http_port == options.grpc_port != 0:
        raise CommandError(
            f"HTTP and gRPC cannot share port {options.http_port}: set another --http-port or "
            "--grpc-port."
        )
