"""The workers of a local cluster's models, and how they share the machine's cores. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from baton.cli.cluster.local.models.local_model import ROLES, LocalModel
from baton.cli.cluster.local.spec import ProcessSpec, StopOrder
from baton.cli.shared.errors import CommandError


@dataclass(frozen=True, slots=True)
class EngineThreads:
    """Compute threads of each engine."""

    own: int
    """Cores of the machine per engine: threads that never share a core."""
    prefill: int
    """Of a prefill worker, which shares cores with decode workers."""
    decode: int
    """Of a decode worker whose threads never wait for one without a core."""
    shared: bool
    """Whether prefill workers compute on the same cores."""


def share_cores(cores: int, models: Sequence[LocalModel], pin: bool) -> EngineThreads:
    """Return the compute threads of the engines of these models."""
    counts = {role: sum(model.workers(role) for model in models) for role in ROLES}
    own = engine_threads(cores, sum(counts.values()))
    if pin:
        return EngineThreads(own, own, own, shared=False)
    return EngineThreads(
        own,
        engine_threads(cores, counts["prefill"]),
        engine_threads(cores, counts["decode"]),
        shared=counts["prefill"] > 0,
    )


def engine_threads(cores: int, workers: int) -> int:
    """Return the compute threads of each engine: about one per core in total."""
    return max(1, cores // max(1, workers))


def worker_specs(
    model: LocalModel,
    base: Mapping[str, str],
    threads: EngineThreads,
    on_shared_cores: Mapping[str, str],
    first: Mapping[str, int],
) -> list[ProcessSpec]:
    """Return the workers of a model.

    Args:
        model: the model.
        base: settings of all workers of the cluster.
        threads: of their engines.
        on_shared_cores: settings of decode workers that compute on the cores of prefill workers.
        first: number of the first worker of each role; numbers are unique in the cluster.
    """
    settings = {
        **base,
        "BATON_KV_STORE_ID": "kvstore-0",
        "BATON_ENGINE_MODEL": str(model.path),
        "BATON_ENGINE_MODEL_NAME": model.name,
        "BATON_ENGINE_DTYPE": model.dtype,
        "BATON_ENGINE_KIND": model.engine,
    }
    own = threads.own
    # Other engines' threads wait for each other, each time for one that has no core.
    native = threads.decode if model.engine == "torch" else own
    nicer = on_shared_cores if native > own and threads.shared else {}
    of_role = {
        "prefill": _threads(threads.prefill, own=own),
        "decode": _threads(own, own=own, native=native) | dict(nicer),
        "combined": _threads(own, own=own),
    }
    return [
        ProcessSpec(
            f"{role}-{number}",
            "prefill" if role == "prefill" else "decode",
            StopOrder.WORKERS,
            MappingProxyType(
                {
                    **settings,
                    **of_role[role],
                    "BATON_ROLE": role,
                    "BATON_INSTANCE_ID": f"{role}-{number}",
                }
            ),
            model.name,
        )
        for role in ROLES
        for number in range(first[role], first[role] + model.workers(role))
    ]


def pinned(engines: Sequence[ProcessSpec], cores: Sequence[int], threads: int) -> list[ProcessSpec]:
    """Return the engines, each with separate CPU cores.

    Raises:
        CommandError: there are not enough.
    """
    if len(engines) * threads > len(cores):
        raise CommandError(
            f"--pin needs a core for each of {len(engines)} workers, and this machine has "
            f"{len(cores)}: start fewer workers, or remove --pin."
        )
    found = []
    for number, spec in enumerate(engines):
        own = cores[number * threads : (number + 1) * threads]
        settings = {**spec.settings, "BATON_ENGINE_CORES": ",".join(map(str, own))}
        found.append(replace(spec, settings=MappingProxyType(settings)))
    return found


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
