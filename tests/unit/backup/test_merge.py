"""Which of two copies of a record stays when a backup is restored."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from baton.backup.merge import Merged, MergeRules, Outcome, is_lost, merge, new_epoch
from baton.backup.usage_since import UsageSince
from baton.tenancy.limits.budget import record as spending
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord
from baton.tenancy.records.audit import AuditHead
from baton.tenancy.records.tenants import encode
from baton.usage.record import UsageRecord
from baton.usage.record import encode as encode_usage
from tests.support.tenancy import key, project, tenant
from tests.support.usage.records import begun

KEY = "tenancy/keys/key_0123456789abcdef"
SPENT = "spending/202611/tenant/acme"


def merged(
    name: str,
    saved: bytes,
    stored: bytes | None,
    *,
    lost: bool = False,
    revive: bool = False,
    backup_id: str = "b",
    usage: UsageSince | None = None,
) -> Merged:
    return merge(name, saved, stored, MergeRules(backup_id, lost, revive, 77, usage))


@pytest.mark.parametrize("name", [KEY, "tenants/acme", "tenancy/later/x", SPENT])
def test_what_etcd_lacks_was_lost_or_deleted(name: str) -> None:
    saved = spending.encode(SpendRecord("")) if name == SPENT else b"{}"
    assert merged(name, saved, None, lost=True).outcome is Outcome.RESTORED
    assert merged(name, saved, None) == Merged(Outcome.DELETED)
    assert merged(name, saved, None, revive=True).outcome is Outcome.RESTORED


@pytest.mark.parametrize("lost", [True, False])
def test_of_two_records_the_one_with_more_changes_stays(lost: bool) -> None:
    old, new = encode(tenant(weight=2)), encode(tenant(weight=3, version=2))
    name = "tenancy/tenants/acme"
    assert merged(name, old, new, lost=lost).outcome is Outcome.NEWER
    assert merged(name, new, old, lost=lost) == Merged(Outcome.RESTORED, new)
    assert merged(name, new, new, lost=lost).outcome is Outcome.SAME
    other = encode(tenant(weight=4, version=2))
    assert merged(name, new, other, lost=lost).outcome is Outcome.NEWER
    assert merged(name, new, b"damaged", lost=lost).outcome is Outcome.NEWER


def test_what_ended_since_stays_ended_unless_it_is_revived() -> None:
    record, _ = key()
    later = b',"field_of_tomorrow":1}'
    saved = encode(record)[:-1] + later
    revoked = encode(msgspec.structs.replace(record, revoked_seconds=9, version=5))
    for lost in (True, False):
        assert merged(KEY, saved, revoked, lost=lost) == Merged(Outcome.ENDED)
        revived = merged(KEY, saved, revoked, lost=lost, revive=True)
        assert revived.value is not None
        fields = msgspec.json.decode(revived.value)
        assert (fields["version"], fields["field_of_tomorrow"]) == (6, 1)
        assert "revoked_seconds" not in fields
    ended = encode(project(archived_seconds=3))
    again = encode(project(archived_seconds=3, version=2))
    name = f"tenancy/projects/{project().id}"
    assert merged(name, ended, again, revive=True).outcome is Outcome.NEWER, "it had ended before"


def test_a_salt_drawn_anew_is_replaced_and_one_that_was_replaced_on_purpose_is_not() -> None:
    assert merged("tenants/acme", b"old", b"new", lost=True) == Merged(Outcome.RESTORED, b"old")
    assert merged("tenants/acme", b"old", b"new").outcome is Outcome.NEWER


def test_audit_records_keep_their_order() -> None:
    few, many = encode(AuditHead(3)), encode(AuditHead(700))
    assert merged("audit/acme", many, few, lost=True) == Merged(Outcome.RESTORED, many)
    assert merged("audit/acme", few, many, lost=True).outcome is Outcome.NEWER
    name = "audit/acme/audit_0000000000000003"
    assert merged(name, b"a", b"b", lost=True).outcome is Outcome.NEWER
    assert merged(name, b"a", None).outcome is Outcome.NEWER, "the oldest are deleted"
    assert merged(name, b"a", None, lost=True) == Merged(Outcome.RESTORED, b"a")


def test_last_uses_are_filled_up() -> None:
    assert merged("uses/key_1", b"a", None) == Merged(Outcome.RESTORED, b"a")
    assert merged("uses/key_1", b"a", b"b", lost=True).outcome is Outcome.NEWER


def spent(**fields: Any) -> bytes:
    return spending.encode(SpendRecord(**{"owner": "r0", **fields}))


def test_spending_is_added_up_once_however_often_it_is_restored() -> None:
    saved = spent(
        frontends={"f0": FrontendCharge(1, 50, 20), "f1": FrontendCharge(3, 9, 9)},
        folded_charged=100,
        folded_settled=90,
        alerts=("a",),
    )
    now = spent(
        frontends={"f1": FrontendCharge(4, 30, 12), "f2": FrontendCharge(1, 5, 5)}, alerts=("b",)
    )
    once = merged(SPENT, saved, now, lost=True).value
    assert once is not None
    record = spending.parse(once)
    assert (record.settled, record.charged) == (20 + 12 + 5 + 90, 50 + 30 + 5 + 100)
    assert (record.owner, set(record.alerts)) == ("", {"a", "b"})
    assert merged(SPENT, saved, once, lost=True).outcome is Outcome.SAME
    from_empty = merged(SPENT, saved, None, lost=True).value
    assert from_empty is not None
    assert spending.parse(from_empty).settled == 119
    assert merged(SPENT, saved, now).outcome is Outcome.NEWER, "etcd has lost nothing"
    assert merged(SPENT, saved, b"damaged", lost=True).value is None


def test_epochs_tell_whether_etcd_lost_data_since_a_backup() -> None:
    assert not is_lost("e0", 100, "e0", 70)
    assert is_lost("e0", 60, "e0", 70), "etcd has an older copy"
    assert is_lost("", 5, "e0", 70)
    assert is_lost("e1", 500, "e0", 70)
    assert is_lost("e0", 500, "", 70)
    restored = new_epoch("e2", "e0", 70)
    assert not is_lost(restored, 5, "e0", 70), "it was restored there, and used since"
    assert not is_lost(restored, 5, "e0", 60)
    assert is_lost(restored, 5, "e0", 80), "a later backup of that time was not"
    assert not is_lost(restored, 9, restored, 7)
    assert new_epoch("e2", "", 70) == "e2"


CREATED = 1_795_000_000  # in November 2026


def since(*records: UsageRecord, tmp_path: Path) -> UsageSince:
    file = tmp_path / "usage.jsonl"
    file.write_bytes(b"".join(encode_usage(one) + b"\n" for one in (*records, *records[:1])))
    usage = UsageSince(CREATED)
    usage.read_files(file)
    return usage


def cost(nanodollars: int, ended: float, began: float = CREATED - 100.0) -> UsageRecord:
    """Return a request; times in seconds, relative to the backup if they are small."""
    return begun(
        began_ms=int(began * 1000),
        ended_ms=int((CREATED + ended) * 1000),
        cost_nanodollars=nanodollars,
        outcome="ok",
    )


def test_spending_is_the_sum_of_the_months_requests_to_the_unit(tmp_path: Path) -> None:
    """The record lags: whether it has the last requests before the backup makes no difference."""
    requests = [cost(100, -50), cost(20, -1), cost(3, 0.5), cost(4, 90)]
    usage = since(*requests, tmp_path=tmp_path)
    live = spent(frontends={"f9": FrontendCharge(1, 9, 4)})
    for saved in (100, 120, 123):
        charges = {"f0": FrontendCharge(1, saved + 8, saved)}
        for stored, reserved in ((None, 0), (live, 5)):
            once = merged(SPENT, spent(frontends=charges), stored, lost=True, usage=usage).value
            assert once is not None
            record = spending.parse(once)
            assert (record.settled, record.charged) == (127, 127 + reserved)
            again = merged(SPENT, spent(frontends=charges), once, lost=True, usage=usage)
            assert again.outcome is Outcome.SAME


def test_a_budget_of_the_middle_of_a_month_counts_from_then(tmp_path: Path) -> None:
    usage = since(cost(1000, -50), cost(20, -10), cost(4, 90), tmp_path=tmp_path)
    assert usage.spent(SPENT, 20) == 24, "1000 were spent before there was a budget"
    assert usage.spent(SPENT, 5000) == 5004, "some usage records are gone"
    assert usage.spent("spending/202611/tenant/other", 7) == 7


def test_requests_belong_to_the_month_in_which_they_began(tmp_path: Path) -> None:
    december = CREATED + 20 * 86_400.0
    usage = since(
        cost(1, -1), cost(50, 0, began=CREATED - 40 * 86_400.0), cost(7, 21 * 86_400, december),
        tmp_path=tmp_path,
    )  # fmt: skip
    assert usage.spent("spending/202611/tenant/acme", 0) == 1
    assert usage.spent("spending/202612/project/proj_1", 0) == 7
    assert ("key/key_1", "spending/202612/key/key_1") in list(usage.names())
    assert len(list(usage.names())) == 6
