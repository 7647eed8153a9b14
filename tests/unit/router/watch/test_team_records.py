"""Records of tenants and classes in etcd are in force at once, and what is unreadable is not."""

import math

import msgspec
import pytest

from baton.tenancy.records import classes as class_record
from baton.tenancy.records.tenants import Tenant, Tier, encode
from baton.v1 import common_pb2
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.shares.tenants import DEFAULT_SHARE, TenantShare, TenantShares
from services.router.watch.team_records import ClassRecords, TenantRecords, policy_of

BATCH = common_pb2.PRIORITY_CLASS_BATCH
PREMIUM = common_pb2.PRIORITY_CLASS_PREMIUM


def test_a_tenants_share_follows_its_record() -> None:
    shares = TenantShares()
    records = TenantRecords(shares)
    records.begin(1)
    records.take("acme", encode(Tenant(id="acme", tier=Tier.FREE, weight=4)))
    records.take("plain", encode(Tenant(id="plain", tier=Tier.ENTERPRISE)))
    records.end()
    assert shares.of("acme") == TenantShare(2, 4.0)
    assert shares.of("plain") == TenantShare(0, 1.0)
    assert shares.of("unknown") == DEFAULT_SHARE
    records.change("acme", b"{", 2)
    records.begin(3)  # an etcd that has lost its data
    records.end()
    assert shares.of("acme") == TenantShare(2, 4.0)
    records.change("acme", None, 4)
    assert shares.of("acme") == DEFAULT_SHARE


def test_the_classes_policy_follows_their_records() -> None:
    told: list[AdmissionPolicy] = []
    records = ClassRecords(told.append)
    records.begin(1)
    records.end()
    assert told == []
    batch = class_record.ClassPolicy(id="batch", ceiling=0.5, waits=True)
    records.change("batch", encode(batch), 2)
    assert told[-1].of(BATCH) == ClassAdmission(ceiling=0.5, waits=True)
    assert told[-1].of(PREMIUM) == ClassAdmission()
    premium = class_record.ClassPolicy(id="premium", floor=0.7, ttft_target_seconds=1.5)
    records.change("premium", encode(premium), 3)
    assert told[-1].of(PREMIUM) == ClassAdmission(floor=0.7, ttft_target=1.5)
    number = len(told)
    for value in (b"[]", encode(class_record.ClassPolicy(id="batch", floor=0.4))):
        records.change("batch", value, 4)  # with premium's floor more than there is
        assert len(told) == number
    records.change("of a later release", None, 5)
    records.change("premium", None, 6)
    assert told[-1].of(PREMIUM) == ClassAdmission()
    assert told[-1].of(BATCH).floor == 0.4


def test_what_a_record_does_not_say_is_as_without_one() -> None:
    assert policy_of(class_record.ClassPolicy(id="batch")) == ClassAdmission()


@pytest.mark.parametrize("name", class_record.FIELDS)
def test_every_field_of_a_record_counts(name: str) -> None:
    value: object = {"waits": True, "requests_at_once": 3}.get(name, 0.25)
    fields = {name: value, "id": "batch"} | ({"ceiling": 0.5} if name == "floor" else {})
    record = msgspec.convert(fields, class_record.ClassPolicy)
    plain = msgspec.structs.asdict(record) | {name: type(value)(0)}
    assert policy_of(record) != policy_of(msgspec.convert(plain, class_record.ClassPolicy))
    assert policy_of(record).max_wait == (0.25 if name == "max_wait_seconds" else math.inf)
