"""Memory, CPU and disk: what is asked for, and what is allowed."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from baton.settings import StartupError
from tests.k8s.manifests.processes import settings_of
from tests.k8s.manifests.quantity import quantity
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Container, Rendered, title, walk

_MAPS = ("requests", "limits")
_AMOUNTS = (("resources", "requests"), ("resources", "limits"))
_KNOWN = {"cpu", "memory", "ephemeral-storage"}


@rule
def quantities_are_quantities(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        for path, value in walk(one):
            if path[-3:-1] in _AMOUNTS or path[-1:] == ("sizeLimit",):
                try:
                    found = quantity(value)
                except ValueError as error:
                    yield f"{title(one)}: {'.'.join(path)}: {error}"
                    continue
                of_cpu = path[-1] == "cpu"
                if found < 0 or (found * (1000 if of_cpu else 1)) % 1:
                    yield f"{title(one)}: {'.'.join(path)} is {value}: part of the least unit"


@rule
def containers_have_requests_and_limits(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        resources = container.spec.get("resources", {})
        for kind, names in (("requests", ("cpu", "memory")), ("limits", ("memory",))):
            for name in names:
                if name not in resources.get(kind, {}):
                    yield f"{container.name} has no {kind} of {name}"
        for name in {**resources.get("requests", {}), **resources.get("limits", {})}:
            if "/" not in name and name not in _KNOWN:
                yield f"{container.name}: nobody knows the resource {name}"
            asked, most = (_amount(container, kind, name) for kind in _MAPS)
            if asked is not None and most is not None and asked > most:
                yield f"{container.name} asks for more {name} than it may have"
            if "/" in name and asked != most:
                yield f"{container.name} has not equal amounts of {name}"


def _amount(container: Container, kind: str, name: str) -> Decimal | None:
    """Return an amount, or None where none can be read: another rule says so."""
    try:
        return quantity(container.spec.get("resources", {}).get(kind, {}).get(name))
    except ValueError:
        return None


@rule
def claims_ask_for_storage(rendered: Rendered) -> Iterator[str]:
    claims = [(title(one), one) for one in rendered.of("PersistentVolumeClaim")]
    for one in rendered.of("StatefulSet"):
        claims += [(title(one), claim) for claim in one["spec"].get("volumeClaimTemplates", [])]
    for name, claim in claims:
        if "storage" not in claim["spec"].get("resources", {}).get("requests", {}):
            yield f"{name}: a claim asks for no storage"
        if not claim["spec"].get("accessModes"):
            yield f"{name}: a claim has no access mode"


@rule
def temporary_volumes_are_bounded(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        for volume in pod.spec.get("volumes", []):
            if "emptyDir" in volume and "sizeLimit" not in (volume["emptyDir"] or {}):
                yield f"{pod.name}: {volume.get('name')} may fill the node"


@rule
def memory_has_room_for_volumes_in_it(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        held = Decimal(0)
        for mount in container.mounts:
            where = container.pod.volumes.get(mount["name"], {}).get("emptyDir") or {}
            if where.get("medium") == "Memory":
                try:
                    held += quantity(where.get("sizeLimit", "0"))
                except ValueError:
                    continue  # another rule says so
        # Who writes a page first is charged for it: the worker as well as the store.
        most = _amount(container, "limits", "memory")
        if most is not None and held >= most:
            yield f"{container.name} is killed once it has filled its volumes in memory"


@rule
def arenas_fit_their_volumes(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if container.process != "kvstore":
            continue
        try:
            found = settings_of(container)
        except StartupError:
            continue  # another rule says so
        directory = str(found.store.arena_dir)
        volumes = {
            m["mountPath"]: container.pod.volumes.get(m["name"], {}) for m in container.mounts
        }
        volume = volumes.get(directory, {})
        room = (volume.get("emptyDir") or {}).get("sizeLimit")
        if room is None and "hostPath" not in volume:
            yield f"{container.name} has its arena in {directory}, where no volume is"
        try:
            if room is not None and quantity(room) < found.store.arena_bytes * Decimal("1.1"):
                yield f"{container.name}: {room} has no room for the arena and its index"
        except ValueError:
            continue  # another rule says so
        for other in container.pod.baton:
            if other.process != "kvstore" and directory not in {
                mount["mountPath"] for mount in other.mounts
            }:
                yield f"{other.name} does not mount the arena at {directory} as its store does"


@rule
def spools_fit_their_volumes(rendered: Rendered) -> Iterator[str]:
    """What outlives the process is on a volume of its own, has room, and goes somewhere."""
    for container in rendered.containers:
        if container.process != "frontend":
            continue
        try:
            found = settings_of(container)
        except StartupError:
            continue  # another rule says so
        usage, stored = found.usage, found.conversations
        has_database = bool(found.state.url.get_secret_value())
        if usage.spool_path and not (usage.kafka.brokers or usage.jsonl_path or has_database):
            yield f"{container.name} does not start: its records have no destination"
        if stored.enabled and not (has_database and stored.spool_path):
            yield f"{container.name} has no database, or no spool, for what it stores"
        spools = [one for one in (usage, stored) if one.spool_path]
        needed = sum(one.spool_bytes for one in spools)
        for one in spools:
            yield from _spool_fits(container, one.spool_path, needed)


def _spool_fits(container: Container, path: Path, needed: int) -> Iterator[str]:
    """Check the volume of a spool, which has room for all of them."""
    mounts = {m["mountPath"]: container.pod.volumes[m["name"]] for m in container.mounts}
    above = [str(one) for one in (path, *path.parents)]
    volume = next((mounts[one] for one in above if one in mounts), {})
    temporary = volume.get("emptyDir", {})
    if not {"emptyDir", "spec"} & set(volume) or volume.get("name") == "tmp":
        yield f"{container.name} has its spool in {path}, where no volume is for it"
    elif temporary.get("medium"):
        yield f"{container.name} has its spool in memory"
    else:
        claimed = volume.get("spec", {}).get("resources", {}).get("requests", {})
        try:
            size = quantity(claimed.get("storage", temporary.get("sizeLimit")))
        except ValueError:
            return  # another rule says so
        if size < needed * Decimal("1.5"):
            yield f"{container.name} loses its volume before its spool is full"
