"""Who is alive: a state machine with no I/O and no clock of its own.

It is told what etcd says, whom callers suspect and what probes found, and answers what changed and
whom to probe. A member is *registered* while its key is in etcd.

    etcd put ──▶ alive ──suspect()──▶ probe ──ok──▶ alive
                   │                    └─failed──▶ hidden (probed again until it answers)
                   ├──key gone────────▶ probe ──ok──▶ alive, probed again until it is registered
                   │                    └─failed──▶ gone
                   └──key gone while draining ─────▶ gone

So a lease that lapsed alone removes nobody, and neither does an outage of etcd, which says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Literal

from baton.internal.v1.cluster_pb2 import Instance, Role

REPROBE_SECONDS = 1.0
"""Between two probes of a member that is hidden, or alive and not registered."""

ChangeKind = Literal["up", "down", "update", "models"]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to the view. `models` carries an empty instance."""

    kind: ChangeKind
    instance: Instance


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask an instance whether it lives."""

    instance_id: str
    incarnation: str
    address: str


@dataclass(slots=True)
class _Member:
    instance: Instance
    registered: bool = True
    alive: bool = True
    """False: hidden; a probe failed and it is registered still."""
    probing: bool = False
    suspected: bool = False
    """A caller saw its connection break while a probe ran, which may have answered before."""
    probe_at: float | None = None


@dataclass
class Membership:
    """The view of one process. Every method takes the time and answers the changes, in order."""

    _members: dict[str, _Member] = field(default_factory=dict)
    _alive: dict[str, Instance] = field(default_factory=dict)
    _roles: dict[Role.ValueType, dict[str, Instance]] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)

    @property
    def alive(self) -> Mapping[str, Instance]:
        """Instances by id; a live view."""
        return MappingProxyType(self._alive)

    def by_role(self, role: Role.ValueType) -> list[Instance]:
        return list(self._roles.get(role, {}).values())

    def put(self, instance: Instance, now: float) -> list[Change]:
        """etcd holds this record."""
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
        return [Change("update", instance)]

    def removed(self, instance_id: str, now: float) -> list[Change]:
        """etcd does not hold a record of this instance any more."""
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

    def listed(self, instances: Iterable[Instance], now: float) -> list[Change]:
        """etcd holds exactly these records."""
        records = {instance.id: instance for instance in instances}
        changes = []
        for instance_id in [id_ for id_ in self._members if id_ not in records]:
            changes += self.removed(instance_id, now)
        for instance in records.values():
            changes += self.put(instance, now)
        return changes

    def suspect(self, instance_id: str, now: float) -> None:
        """A caller saw its connection to an instance break. Unknown ids are nobody's concern."""
        member = self._members.get(instance_id)
        if member is not None and member.alive:
            member.suspected = member.probing
            self._schedule(instance_id, member, now)

    def probes(self, now: float, limit: int) -> list[Probe]:
        """At most `limit` probes to start now; each is answered by `probed`."""
        started: list[Probe] = []
        while self._due and self._due[0][0] <= now and len(started) < limit:
            at, instance_id = heappop(self._due)
            member = self._members.get(instance_id)
            if member is None or member.probe_at != at or member.probing:
                continue  # an older entry of an instance that was scheduled anew
            member.probe_at, member.probing = None, True
            instance = member.instance
            started.append(Probe(instance_id, instance.incarnation, instance.address))
        return started

    def next_probe(self) -> float | None:
        """When `probes` may have something to start; None: not before something else happens."""
        return self._due[0][0] if self._due else None

    def probed(self, probe: Probe, answered: bool, now: float) -> list[Change]:
        """A probe ended. One of an earlier incarnation says nothing."""
        member = self._members.get(probe.instance_id)
        if member is None or member.instance.incarnation != probe.incarnation:
            return []
        member.probing = False
        instance = member.instance
        if not answered:
            if not member.registered:
                del self._members[instance.id]
            else:
                self._schedule(instance.id, member, now + REPROBE_SECONDS)
            member.suspected = False
            if not member.alive:
                return []
            member.alive = False
            return [self._down(instance)]
        if member.suspected:
            member.suspected = False
            self._schedule(instance.id, member, now)
        elif not member.registered:
            self._schedule(instance.id, member, now + REPROBE_SECONDS)
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

    def _up(self, instance: Instance) -> Change:
        self._show(instance)
        return Change("up", instance)

    def _down(self, instance: Instance) -> Change:
        shown = self._alive.pop(instance.id)
        del self._roles[shown.role][instance.id]
        return Change("down", shown)


def _identity(instance: Instance) -> tuple[object, ...]:
    """What cannot change while a process lives; a record that differs in it is another process."""
    return (
        instance.incarnation,
        instance.role,
        instance.address,
        instance.model,
        instance.layout_id,
    )
