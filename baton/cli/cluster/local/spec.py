"""What a local cluster runs: its processes, and the pools of its workers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum


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
    model: str = ""
    """Name of the model that it serves; empty: it is no worker."""

    @property
    def role(self) -> str:
        """What its ID begins with: `prefill`, `frontend`, …"""
        return self.id.rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class LocalPool:
    """The workers of one role and model, in the order to start them."""

    model: str
    role: str
    ids: tuple[str, ...]


def pools_of(specs: Iterable[ProcessSpec]) -> list[LocalPool]:
    """Return the pools of these processes, in their order."""
    ids: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        if spec.model:
            ids.setdefault((spec.model, spec.role), []).append(spec.id)
    return [LocalPool(model, role, tuple(found)) for (model, role), found in ids.items()]


def ids_of_models(pools: Iterable[LocalPool]) -> dict[str, list[str]]:
    """Return the ids of each model's workers, in the order of the pools."""
    ids: dict[str, list[str]] = {}
    for pool in pools:
        ids.setdefault(pool.model, []).extend(pool.ids)
    return ids


def summary(specs: Sequence[ProcessSpec]) -> str:
    """Return the number of processes by role: `1 frontend, 2 prefill, …`."""
    roles = [spec.role for spec in specs]
    return ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles))
