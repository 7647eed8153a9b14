"""Who is alive: the rules one by one, then any order of events against a model of the truth."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from baton.cluster.members.membership import (
    SILENT_PROBES,
    Liveness,
    Membership,
    MembershipChange,
    Probe,
)
from baton.internal.v1.cluster_pb2 import ROLE_DECODE, ROLE_PREFILL, Instance
from tests.support.examples import examples

REPROBE_SECONDS = 1.0


def worker(number: int = 1, incarnation: str = "i-1", **fields) -> Instance:
    fields = {"role": ROLE_DECODE, "address": f"127.0.0.1:{number}", **fields}
    return Instance(id=f"w{number}", incarnation=incarnation, **fields)


def kinds(changes: list[MembershipChange]) -> list[tuple[str, str]]:
    return [(change.kind, change.instance.incarnation) for change in changes]


def probe(view: Membership, now: float) -> Probe:
    (started,) = view.start_probes(now, 10)
    return started


def test_record_brings_an_instance_up_once():
    view = Membership(REPROBE_SECONDS)
    assert kinds(view.on_put(worker(), 0)) == [("up", "i-1")]
    assert view.on_put(worker(), 1) == []
    assert view.by_role(ROLE_DECODE) == [worker()]
    assert view.by_role(ROLE_PREFILL) == []


def test_changed_record_is_an_update():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    assert kinds(view.on_put(worker(draining=True), 1)) == [("update", "i-1")]
    assert view.alive["w1"].draining
    assert view.by_role(ROLE_DECODE)[0].draining


def test_new_incarnation_is_down_then_up():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    assert kinds(view.on_put(worker(incarnation="i-2"), 1)) == [("down", "i-1"), ("up", "i-2")]


def test_record_that_names_another_address_is_another_process():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    changes = view.on_put(worker(address="127.0.0.1:9", role=ROLE_PREFILL), 1)
    assert kinds(changes) == [("down", "i-1"), ("up", "i-1")]
    assert view.by_role(ROLE_DECODE) == []


def test_expired_lease_alone_removes_nothing():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    assert view.on_delete("w1", 5) == []
    assert "w1" in view.alive
    assert view.on_probed(probe(view, 5), found="alive", now=5.1) == []
    assert "w1" in view.alive


def test_lapsed_lease_and_failed_probe_remove():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_delete("w1", 5)
    assert kinds(view.on_probed(probe(view, 5), found="dead", now=6)) == [("down", "i-1")]
    assert not view.alive
    assert view.next_probe_at() is None


def test_lapsed_lease_and_a_late_answer_remove_nothing():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_delete("w1", 5)
    for again in range(SILENT_PROBES - 1):
        assert view.on_probed(probe(view, 5 + again), found="silent", now=5 + again) == []
    assert view.on_probed(probe(view, 8), found="alive", now=8) == []
    for again in range(SILENT_PROBES - 1):
        assert view.on_probed(probe(view, 9 + again), found="silent", now=9 + again) == []
    changes = view.on_probed(probe(view, 12), found="silent", now=12)
    assert kinds(changes) == [("down", "i-1")]


def test_a_late_answer_over_a_new_connection_where_one_broke_removes():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_delete("w1", 5)
    assert view.on_probed(probe(view, 5), found="silent", now=5) == []
    view.on_unreachable("w1", 5.5)
    assert kinds(view.on_probed(probe(view, 5.5), found="silent", now=6)) == [("down", "i-1")]


def test_live_instance_without_a_record_is_probed_until_it_is_registered_again():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_delete("w1", 5)
    view.on_probed(probe(view, 5), found="alive", now=5.1)
    assert view.next_probe_at() == 5.1 + REPROBE_SECONDS
    view.on_put(worker(), 6)
    view.on_probed(probe(view, 7), found="alive", now=7)
    assert view.next_probe_at() is None


def test_record_deleted_while_draining_removes_at_once():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(draining=True), 0)
    assert kinds(view.on_delete("w1", 1)) == [("down", "i-1")]
    assert view.start_probes(9, 10) == []


def test_suspect_that_answers_stays_without_a_change():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_unreachable("w1", 1)
    assert view.on_probed(probe(view, 1), found="alive", now=1.1) == []
    assert view.next_probe_at() is None


def test_suspect_that_does_not_answer_is_down_and_comes_back_when_it_does():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_unreachable("w1", 1)
    assert kinds(view.on_probed(probe(view, 1), found="dead", now=2)) == [("down", "i-1")]
    assert view.on_put(worker(draining=True), 2.1) == []  # its record is no proof of life
    assert view.on_list([worker(draining=True)], 2.2) == []
    again = probe(view, 2.2)
    changes = view.on_probed(again, found="alive", now=2.3)
    assert kinds(changes) == [("up", "i-1")]
    assert changes[0].instance.draining


def test_hidden_instance_whose_record_goes_is_forgotten():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_unreachable("w1", 1)
    view.on_probed(probe(view, 1), found="dead", now=2)
    assert view.on_delete("w1", 3) == []
    assert view.start_probes(99, 10) == []
    assert kinds(view.on_put(worker(), 100)) == [("up", "i-1")]


def test_many_suspicions_make_one_probe():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    for _ in range(100):
        view.on_unreachable("w1", 1)
    started = probe(view, 1)
    for _ in range(100):
        view.on_unreachable("w1", 1.1)
    assert view.start_probes(2, 10) == []
    view.on_probed(started, found="alive", now=1.2)
    assert len(view.start_probes(2, 10)) == 1  # it may have answered before its connection broke


def test_later_suspicion_does_not_put_off_a_probe_that_is_due():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_unreachable("w1", 1)
    view.on_unreachable("w1", 1.5)
    assert len(view.start_probes(1.2, 10)) == 1


def test_probe_of_an_earlier_incarnation_says_nothing():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(), 0)
    view.on_unreachable("w1", 1)
    stale = probe(view, 1)
    view.on_put(worker(incarnation="i-2"), 1.5)
    assert view.on_probed(stale, found="dead", now=2) == []
    assert view.alive["w1"].incarnation == "i-2"


def test_list_finds_what_the_watch_missed():
    view = Membership(REPROBE_SECONDS)
    view.on_put(worker(1), 0)
    view.on_put(worker(2), 0)
    changes = view.on_list([worker(2, "i-9"), worker(3)], 1)
    assert kinds(changes) == [("down", "i-1"), ("up", "i-9"), ("up", "i-1")]
    assert probe(view, 1).instance_id == "w1"


def test_no_more_probes_start_than_allowed_and_the_rest_follow():
    view = Membership(REPROBE_SECONDS)
    for number in range(10):
        view.on_put(worker(number), 0)
    view.on_list([], 1)
    first = view.start_probes(1, 4)
    assert len(first) == 4
    assert view.next_probe_at() == 1
    assert len(view.start_probes(1, 100)) == 6


class AnyOrder(RuleBasedStateMachine):
    """Processes live, freeze, die and come back; etcd tells of them; probes tell the truth late."""

    ids = st.integers(0, 3)

    @initialize()
    def begin(self):
        self.now = 0.0
        self.view = Membership(REPROBE_SECONDS)
        self.folded: dict[str, Instance] = {}
        self.lives: dict[str, Instance] = {}  # processes that answer
        self.records: dict[str, Instance] = {}  # what the view was told of etcd
        self.running: list[Probe] = []
        self.starts = 0

    def tell(self, changes: list[MembershipChange]) -> None:
        """Keep a copy from changes alone, and check that each makes sense."""
        for change in changes:
            known = self.folded.get(change.instance.id)
            if change.kind == "up":
                assert known is None
                self.folded[change.instance.id] = change.instance
            elif change.kind == "update":
                assert known is not None
                assert known != change.instance
                self.folded[change.instance.id] = change.instance
            else:
                assert known is not None
                assert known.incarnation == change.instance.incarnation
                del self.folded[change.instance.id]

    @rule(number=ids)
    def start(self, number):
        self.starts += 1
        instance = worker(number, f"i-{self.starts}")
        self.lives[instance.id] = self.records[instance.id] = instance
        self.tell(self.view.on_put(instance, self.now))

    @rule(number=ids)
    def die(self, number):
        self.lives.pop(f"w{number}", None)

    @rule(number=ids)
    def thaw(self, number):
        if f"w{number}" in self.records:
            self.lives[f"w{number}"] = self.records[f"w{number}"]

    @rule(number=ids)
    def lease_lapses(self, number):
        self.records.pop(f"w{number}", None)
        self.tell(self.view.on_delete(f"w{number}", self.now))

    @rule(number=ids)
    def drain(self, number):
        if record := self.records.get(f"w{number}"):
            draining = Instance()
            draining.CopyFrom(record)
            draining.draining = True
            self.records[draining.id] = draining
            self.tell(self.view.on_put(draining, self.now))

    @rule()
    def register_again(self):
        for instance in self.lives.values():
            self.records.setdefault(instance.id, instance)
            self.tell(self.view.on_put(self.records[instance.id], self.now))

    @rule()
    def list_again(self):
        self.tell(self.view.on_list(self.records.values(), self.now))

    @rule(number=ids)
    def connection_breaks(self, number):
        self.view.on_unreachable(f"w{number}", self.now)

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 5.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(limit=st.integers(0, 4))
    def probes_start(self, limit):
        for started in self.view.start_probes(self.now, limit):
            same = (started.instance_id, started.incarnation)
            assert same not in [(p.instance_id, p.incarnation) for p in self.running]
            self.running.append(started)

    def truth(self, ended: Probe, late: bool) -> Liveness:
        life = self.lives.get(ended.instance_id)
        if life is not None and life.incarnation == ended.incarnation:
            return "alive"
        return "silent" if late else "dead"

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def probe_ends(self, data):
        ended = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        found = self.truth(ended, data.draw(st.booleans()))
        was_alive = ended.instance_id in self.view.alive
        self.tell(self.view.on_probed(ended, found, self.now))
        if found == "alive" and was_alive:
            assert ended.instance_id in self.view.alive

    @rule()
    def all_settles(self):
        """Everybody who should be probed is, truthfully: then view and truth agree."""
        for number in range(4):
            self.view.on_unreachable(f"w{number}", self.now)
        for _ in range(4):
            self.now += 2 * REPROBE_SECONDS
            self.probes_start(100)
            for ended in self.running:
                self.tell(self.view.on_probed(ended, self.truth(ended, late=True), self.now))
            self.running.clear()
        registered = {
            id_: record
            for id_, record in self.records.items()
            if id_ in self.lives and self.lives[id_].incarnation == record.incarnation
        }
        for id_, instance in self.view.alive.items():
            assert self.lives[id_].incarnation == instance.incarnation
        for id_, record in registered.items():
            assert self.view.alive[id_] == record

    @invariant()
    def changes_tell_the_whole_view(self):
        assert self.folded == dict(self.view.alive)
        assert sorted(i.id for i in self.view.by_role(ROLE_DECODE)) == sorted(self.view.alive)

    @invariant()
    def nobody_with_a_record_is_lost_without_a_failed_probe(self):
        waits = {started.instance_id for started in self.running}
        for id_ in self.records:
            assert id_ in self.view.alive or id_ in waits or self.view.next_probe_at() is not None


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(60), stateful_step_count=40)
