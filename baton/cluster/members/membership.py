"""Which instances are alive: a state machine without I/O or a clock.

Its inputs are the records in etcd, the instances that callers could not reach, and probe results;
its outputs are membership changes and the instances to probe. A member is registered while its key
is in etcd.

    etcd put ──▶ alive ──unreachable──▶ probe ──ok──▶ alive
                   │                      └─failed──▶ down, probed again until it answers
                   ├──key deleted───────▶ probe ──ok──▶ alive, probed again until it is registered
                   │                      ├─failed──▶ removed
                   │                      └─silent──▶ probed again, removed the third time
                   └──key deleted while draining ───▶ removed

So a lease that expired alone removes no instance, and neither does an etcd outage. When all leases
have expired, all processes probe each other at the same time: a late response then is not a
failure, unless a connection to that instance broke as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Literal

from baton.internal.v1.cluster_pb2 import Instance, Role

ChangeKind = Literal["up", "down", "update", "models"]
Liveness = Literal["alive", "dead", "silent"]
"""Result of a probe: `dead` is a rejection or another process, `silent` is no response in time."""
SILENT_PROBES = 3
"""Silent probes in a row after which an instance whose connections work is considered dead."""


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A change of the view. `models` carries an empty instance."""

    kind: ChangeKind
    instance: Instance


def health_address(instance: Instance) -> str:
    """Return the `host:port` of an instance's grpc.health.v1 service inside the cluster."""
    return instance.health_address or instance.address


@dataclass(frozen=True, slots=True)
class Probe:
    """A liveness probe to run: of this incarnation, at this address."""

    instance_id: str
    incarnation: str
    address: str


@dataclass(slots=True)
class _Member:
    instance: Instance
    registered: bool = True
    alive: bool = True
    """False: a probe failed while the instance is still registered."""
    probing: bool = False
    suspect: bool = False
    """A caller lost its connection while a probe ran; the probe may have been answered before
    that."""
    unreachable: bool = False
    """A caller lost its connection since the last successful probe."""
    silent: int = 0
    """Probes in a row that got no response in time."""
    probe_at: float | None = None


@dataclass
class Membership:
    """The view of one process. Methods that return changes return them in order."""

    reprobe_seconds: float
    """Time between two probes of a member that is down, or alive and not registered."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _alive: dict[str, Instance] = field(default_factory=dict)
    _roles: dict[Role.ValueType, dict[str, Instance]] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)

    @property
    def alive(self) -> Mapping[str, Instance]:
        """Live instances by ID; a live view."""
        return MappingProxyType(self._alive)

    def get(self, instance_id: str) -> Instance | None:
        """Return the last record of an instance that is a member, alive or down."""
        member = self._members.get(instance_id)
        return None if member is None else member.instance

    def by_role(self, role: Role.ValueType) -> list[Instance]:
        """Return the live instances of a role."""
        return list(self._roles.get(role, {}).values())

    def on_put(self, instance: Instance, now: float) -> list[MembershipChange]:
        """Record that etcd holds this instance."""
        member = self._members.get(instance.id)
        if member is None:
            self._members[instance.id] = _Member(instance)
            return [self._up(instance)]
        if member.instance is not instance and _identity(member.instance) != _identity(instance):
            changes = [self._down(member.instance)] if member.alive else []
            self._members[instance.id] = _Member(instance)
            return [*changes, self._up(instance)]
        member.registered = True
        changed = member.instance is not instance and member.instance != instance
        member.instance = instance
        if not member.alive:
            self._schedule(instance.id, member, now)
            return []
        if not changed:
            return []
        self._show(instance)
        return [MembershipChange("update", instance)]

    def on_delete(self, instance_id: str, now: float) -> list[MembershipChange]:
        """Record that etcd no longer holds this instance."""
        member = self._members.get(instance_id)
        if member is None:
            return []
        if not member.alive:
            del self._members[instance_id]
            return []
        if member.instance.draining:
            del self._members[instance_id]
            return [self._down(member.instance)]
        if member.registered:
            member.registered = False
            self._schedule(instance_id, member, now)
        return []

    def on_list(self, instances: Iterable[Instance], now: float) -> list[MembershipChange]:
        """Record that etcd holds exactly these instances."""
        records = {instance.id: instance for instance in instances}
        changes = []
        for instance_id in [id_ for id_ in self._members if id_ not in records]:
            changes += self.on_delete(instance_id, now)
        for instance in records.values():
            changes += self.on_put(instance, now)
        return changes

    def on_unreachable(self, instance_id: str, now: float) -> None:
        """Record that a caller's connection to an instance broke. Unknown IDs are ignored."""
        member = self._members.get(instance_id)
        if member is not None and member.alive:
            member.suspect = member.probing
            member.unreachable = True
            self._schedule(instance_id, member, now)

    def start_probes(self, now: float, limit: int) -> list[Probe]:
        """Return at most `limit` probes that are due; report each result to `on_probed`."""
        started: list[Probe] = []
        while self._due and self._due[0][0] <= now and len(started) < limit:
            at, instance_id = heappop(self._due)
            member = self._members.get(instance_id)
            if member is None or member.probe_at != at or member.probing:
                continue  # an older entry of an instance that was scheduled again
            member.probe_at, member.probing = None, True
            instance = member.instance
            started.append(Probe(instance_id, instance.incarnation, health_address(instance)))
        return started

    def next_probe_at(self) -> float | None:
        """Return when the next probe may be due; None: not before another event."""
        return self._due[0][0] if self._due else None

    def on_probed(self, probe: Probe, found: Liveness, now: float) -> list[MembershipChange]:
        """Handle the result of a probe. A result for an earlier incarnation changes nothing."""
        member = self._members.get(probe.instance_id)
        if member is None or member.instance.incarnation != probe.incarnation:
            return []
        member.probing = False
        instance = member.instance
        if found == "silent" and member.alive and not member.unreachable:
            member.silent += 1
            if member.silent < SILENT_PROBES:
                self._schedule(instance.id, member, now + self.reprobe_seconds)
                return []
        if found != "alive":
            if not member.registered:
                del self._members[instance.id]
            else:
                self._schedule(instance.id, member, now + self.reprobe_seconds)
            member.suspect = False
            if not member.alive:
                return []
            member.alive = False
            return [self._down(instance)]
        member.silent = 0
        member.unreachable = member.suspect
        if member.suspect:
            member.suspect = False
            self._schedule(instance.id, member, now)
        elif not member.registered:
            self._schedule(instance.id, member, now + self.reprobe_seconds)
        if member.alive:
            return []
        member.alive = True
        return [self._up(instance)]

    def _schedule(self, instance_id: str, member: _Member, at: float) -> None:
        """Probe at a time, unless a probe runs or is due earlier."""
        if member.probing or (member.probe_at is not None and member.probe_at <= at):
            return
        member.probe_at = at
        heappush(self._due, (at, instance_id))

    def _show(self, instance: Instance) -> None:
        self._alive[instance.id] = instance
        self._roles.setdefault(instance.role, {})[instance.id] = instance

    def _up(self, instance: Instance) -> MembershipChange:
        self._show(instance)
        return MembershipChange("up", instance)

    def _down(self, instance: Instance) -> MembershipChange:
        shown = self._alive.pop(instance.id)
        del self._roles[shown.role][instance.id]
        return MembershipChange("down", shown)


def _identity(instance: Instance) -> tuple[object, ...]:
    """Return the fields that cannot change while a process lives: if they differ, it is another
    process."""
    return (
        instance.incarnation,
        instance.role,
        instance.address,
        instance.model,
        instance.layout_id,
    )
