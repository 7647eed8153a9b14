"""Records of spending are written by one router at a time, and nothing of them is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.budget.month import months_before
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord, encode, parse
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject
from baton.tenancy.records.tenants import SpendAlert, Tier
from services.router.api.budget_records import KEPT_MONTHS, BudgetRecords
from services.router.metrics import SPEND_ALERTS

MONTH, AMOUNT = 202611, 10_000
ID = LimitId(Subject.TENANT, "acme", Measure.COST, MONTH)
LIMIT = Limit(ID, AMOUNT, AMOUNT)


class Router:
    """The budgets of a router that sees itself alone."""

    def __init__(self, name: str, etcd: Any, cluster: str) -> None:
        self.owner = LimitOwner(name)
        self.owner.observe([name], 0.0)
        self.ledger = Ledger(name, self.owner)
        self.now = 100.0
        self.records = BudgetRecords(etcd, cluster, self.ledger, self.serve, lambda: self.now)

    def serve(self) -> None:
        self.owner.serve(self.now)

    def ask(self, frontend: str, need: int = 0, **sums: int) -> LimitGrant | None:
        known = {"term": 1, "base": 0, "granted": 0, "spent": 0, "returned": 0} | sums
        asked = Ask(LIMIT, **known, need=need, want=need, confirm=True)  # type: ignore[arg-type]
        return self.owner.answer(frontend, asked, self.now)


@pytest.fixture
def router(etcd_client: Etcd, cluster: str) -> Callable[[str], Router]:
    return lambda name: Router(name, etcd_client, cluster)


@pytest.fixture
def stored(etcd_client: Etcd, cluster: str) -> Any:
    async def read(month: int = MONTH) -> SpendRecord | None:
        value = await etcd_client.get(keys.spent(cluster, month, Subject.TENANT, "acme"))
        return None if value is None else parse(value)

    return read


async def test_what_one_router_wrote_the_next_one_reads(router: Any, stored: Any) -> None:
    first = router("r0")
    first.ask("f0", need=50)
    await first.records.read()
    first.ask("f0", granted=50, spent=50, settled=20)
    await first.records.write()
    record = await stored()
    assert (record.owner, record.charged, record.settled) == ("r0", 50, 20)
    assert not first.ledger.has_unwritten
    second = router("r1")
    second.ask("f1", need=AMOUNT - 50)
    await second.records.read()
    ((to, answer),) = second.owner.take_pushed()
    assert (to, answer.granted) == ("f1", AMOUNT - 50)
    await second.records.write()
    assert (await stored()).charged == AMOUNT


async def test_of_two_owners_the_second_to_write_defers(router: Any, stored: Any) -> None:
    one, other = router("r0"), router("r1")
    for each, frontend in ((one, "f0"), (other, "f1")):
        each.ask(frontend)
        await each.records.read()
        each.ask(frontend, need=4000)
    await one.records.write()
    await other.records.write()  # finds the other's, and takes it in
    assert not (await stored()).frontends.keys() - {"f0"}
    await other.records.write()
    assert (await stored()).charged == 8000
    one.ask("f0", granted=4000, spent=4000, need=1000)
    await one.records.write()
    refused = one.ask("f2", need=1)
    assert refused is not None
    assert (refused.granted, refused.reserved) == (0, AMOUNT), "another one owns it, too"
    one.now += 6.0
    again = one.ask("f2", need=1)
    assert again is not None
    assert again.granted == 1
    await one.records.write()
    assert (await stored()).charged == 9001


async def test_what_is_not_written_of_a_lost_budget_is_added_to_its_successors(
    router: Any, stored: Any
) -> None:
    before, after = router("r0"), router("r1")
    before.ask("f0", need=70)
    await before.records.read()
    after.ask("f1", need=30)
    await after.records.read()
    await after.records.write()
    before.ledger.move_to(LimitOwner("r0"))
    await before.records.flush()
    record = await stored()
    assert (record.owner, record.charged) == ("r1", 100)
    assert not before.ledger.has_unwritten


async def test_months_long_past_are_deleted_and_damaged_records_left_alone(
    router: Any, stored: Any, etcd_client: Etcd, cluster: str
) -> None:
    old = months_before(MONTH, KEPT_MONTHS)
    key = keys.spent(cluster, old, Subject.TENANT, "acme")
    await etcd_client.put(key, encode(SpendRecord("r9", {"f0": FrontendCharge(1, 1, 1)})))
    one = router("r0")
    one.ask("f0", need=5)
    await one.records.read()
    await one.records.write()
    assert await stored(old) is None
    now = keys.spent(cluster, MONTH, Subject.TENANT, "acme")
    await etcd_client.put(now, b"damaged")
    other = router("r1")
    other.ask("f0", need=AMOUNT // 100)
    other.ask("f1", need=1)
    await other.records.read()
    await other.records.write()
    assert await etcd_client.get(now) == b"damaged"
    assert not other.owner.take_pushed(), "only 1 % of it is lent"
    await etcd_client.put(now, encode(SpendRecord("r0", {"f9": FrontendCharge(1, 7, 7)})))
    other.ledger.read_again()
    await other.records.read()
    assert [to for to, _ in other.owner.take_pushed()] == ["f1"]


class Away:
    """An etcd that fails after some calls have been carried out."""

    def __init__(self, etcd: Etcd, lost: str) -> None:
        self._etcd = etcd
        self.lost = lost

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._etcd, name)

        async def carried_out(*args: Any) -> Any:
            answer = await call(*args)
            if name == self.lost:
                raise EtcdError("the answer is lost")
            return answer

        return carried_out


async def test_alerts_are_told_once_though_answers_are_lost(
    etcd_client: Etcd, cluster: str, stored: Any
) -> None:
    admin = Administration(etcd_client, cluster)
    tenant = await admin.create_tenant("acme", Tier.PRO)
    alert = SpendAlert(id="", threshold_nanodollars=20, recipients=("a@b.example",))
    made = await admin.spend.create_alert(tenant, alert)
    told = SPEND_ALERTS.labels("tenant")._value.get  # type: ignore[attr-defined]
    before = told()
    away = Away(etcd_client, "replace_all")
    router = Router("r0", away, cluster)
    router.ask("f0", need=50)
    await router.records.read()
    router.ask("f0", granted=50, spent=50, settled=20)
    with pytest.raises(EtcdError):
        await router.records.write()
    assert (await stored()).alerts == (made.id,)
    assert told() == before, "whether it is written is not known"
    away.lost = ""
    await router.records.write()
    assert told() == before + 1
    router.ask("f0", granted=50, spent=50, settled=30)
    await router.records.write()
    next_router = Router("r1", etcd_client, cluster)
    next_router.ask("f0", term=2, base=50, granted=50, spent=50, settled=40)
    await next_router.records.read()
    await next_router.records.write()
    assert (await stored()).settled == 40
    assert told() == before + 1
