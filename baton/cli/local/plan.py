"""Which processes make up a local cluster, and with which settings. Pure."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

from baton.cli.errors import CommandError

MAX_WORKERS = 64
HOST = "127.0.0.1"
SMALL = "64MiB"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked `baton up` for. What is None or empty is left to the environment."""

    prefill: int = 2
    decode: int = 2
    combined: int = 0
    frontends: int = 1
    """Processes that share the ports; the system deals connections out to them."""
    model: Path | None = None
    model_name: str = ""
    dtype: str = ""
    engine: str = ""
    http_port: int = 8000
    grpc_port: int = 50051
    etcd_endpoints: tuple[str, ...] = ()
    """Empty: the cluster runs an etcd of its own."""
    cluster: str = "local"
    pin: bool = False
    """Each engine computes on cores of its own."""


class Stop(IntEnum):
    """The order in which a cluster is stopped: those who ask before those who answer."""

    FRONTENDS = 1
    WORKERS = 2
    STORES = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """One process."""

    id: str
    service: str
    """Run as `python -m services.<service>`."""
    stop: Stop
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its own environment variables."""


def plan(
    wanted: Wanted,
    model: Path,
    etcd: Sequence[str],
    cores: Sequence[int],
    memory: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Spec, ...]:
    """The processes of a cluster, etcd aside.

    Args:
        wanted: what was asked for.
        model: the checkpoint's directory.
        etcd: etcd's endpoints.
        cores: that the engines share.
        memory: settings of how much memory engines and stores take; see `small_memory`.

    Raises:
        CommandError: what was asked for makes no cluster.
    """
    _check(wanted, model)
    name = wanted.model_name or model.name
    shared = {
        "BATON_ETCD_ENDPOINTS": ",".join(etcd),
        "BATON_ETCD_CLUSTER": wanted.cluster,
        "BATON_TELEMETRY_METRICS_PORT": "0",
    }
    # The environment's address is the frontend's: the others stay on this machine.
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
    front = shared | {
        "BATON_HTTP_PORT": str(wanted.http_port),
        "BATON_GRPC_PORT": str(wanted.grpc_port),
        "BATON_MODELS": f"{name}={model}",
        "OMP_NUM_THREADS": "1",
    }
    if wanted.frontends > 1:
        front |= {"BATON_HTTP_REUSE_PORT": "true", "BATON_GRPC_REUSE_PORT": "true"}
    threads = engine_threads(len(cores), wanted.prefill + wanted.decode + wanted.combined)
    worker = inner | {
        "BATON_KV_STORE_ID": "kvstore-0",
        "BATON_ENGINE_MODEL": str(model),
        "BATON_ENGINE_MODEL_NAME": name,
        "BATON_ENGINE_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    if wanted.dtype:
        worker["BATON_ENGINE_DTYPE"] = wanted.dtype
    if wanted.engine:
        worker["BATON_ENGINE_KIND"] = wanted.engine
    engines = [
        *_several("prefill", wanted.prefill, "prefill", Stop.WORKERS, worker),
        *_several("decode", wanted.decode, "decode", Stop.WORKERS, worker),
        *_several("combined", wanted.combined, "decode", Stop.WORKERS, worker),
    ]
    if wanted.pin:
        engines = _pinned(engines, cores, threads)
    return (
        *_several("kvstore", 1, "kvstore", Stop.STORES, inner),
        *_several("router", 1, "router", Stop.WORKERS, inner),
        *engines,
        *_several("frontend", wanted.frontends, "frontend", Stop.FRONTENDS, front),
    )


def small_memory(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings for a tiny model, where the environment says nothing: touching memory takes time."""
    names = ("BATON_ENGINE_KV_BYTES", "BATON_KV_ARENA_BYTES")
    return {name: SMALL for name in names if name not in environ}


def engine_threads(cores: int, workers: int) -> int:
    """Compute threads of each engine, so that together they have about one per core."""
    return max(1, cores // max(1, workers))


def cores_here() -> tuple[int, ...]:
    """Cores that this process may use, by number."""
    return tuple(sorted(os.sched_getaffinity(0)))


def summary(specs: Sequence[Spec]) -> str:
    """How many of what, in words: `1 frontend, 2 prefill, …`."""
    roles = [spec.id.rpartition("-")[0] for spec in specs]
    return ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles))


def _pinned(engines: Sequence[Spec], cores: Sequence[int], threads: int) -> list[Spec]:
    """The same with cores of its own for each."""
    if len(engines) * threads > len(cores):
        raise CommandError(
            f"--pin gives each of {len(engines)} workers cores of its own, and there are "
            f"{len(cores)}: ask for fewer workers, or leave --pin out."
        )
    pinned = []
    for number, spec in enumerate(engines):
        own = cores[number * threads : (number + 1) * threads]
        settings = {**spec.settings, "BATON_ENGINE_CORES": ",".join(map(str, own))}
        pinned.append(replace(spec, settings=MappingProxyType(settings)))
    return pinned


def _several(
    role: str, count: int, service: str, stop: Stop, settings: Mapping[str, str]
) -> Iterator[Spec]:
    own = {"BATON_ROLE": role} if service in ("prefill", "decode") else {}
    for index in range(count):
        identity = f"{role}-{index}"
        full = {**settings, **own, "BATON_INSTANCE_ID": identity}
        yield Spec(identity, service, stop, MappingProxyType(full))


def _check(wanted: Wanted, model: Path) -> None:
    for role in ("prefill", "decode", "combined"):
        count = getattr(wanted, role)
        if not 0 <= count <= MAX_WORKERS:
            raise CommandError(f"--{role} is {count}: it must be from 0 to {MAX_WORKERS}.")
    if not 1 <= wanted.frontends <= MAX_WORKERS:
        raise CommandError(
            f"--frontends is {wanted.frontends}: it must be from 1 to {MAX_WORKERS}."
        )
    if wanted.decode + wanted.combined == 0:
        raise CommandError(
            "Nobody would write answers: ask for at least --decode 1 or --combined 1."
        )
    if wanted.http_port == wanted.grpc_port != 0:
        raise CommandError(
            f"HTTP and gRPC cannot share port {wanted.http_port}: change --http-port or "
            "--grpc-port."
        )
    if "," in str(model):
        raise CommandError(f"The model's path {str(model)!r} has a comma in it: rename it.")
