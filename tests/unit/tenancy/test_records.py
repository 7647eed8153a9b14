"""Records of tenancy are read strictly, by sentences that name the field."""

import base64
import json
import re
from typing import Any

import pytest

from baton.tenancy.limits.spec import AMOUNTS, Subject, SubjectLimits
from baton.tenancy.records import tenants as records
from baton.tenancy.records.classes import ClassPolicy, check_floors
from baton.tenancy.records.tenants import Key, Project, ServiceAccount, Tenant, Tier
from baton.v1 import common_pb2

DIGEST = base64.b64encode(bytes(32)).decode()
GOOD_KEY = {
    "id": "key_0123456789abcdef",
    "project": "proj_0123456789abcdef",
    "sha256": DIGEST,
    "scopes": ["inference"],
}
GOOD_PROJECT = {"id": "proj_0123456789abcdef", "tenant": "acme", "name": "search"}
GOOD_ACCOUNT = {
    "id": "svc_acct_0123456789abcdef",
    "project": "proj_0123456789abcdef",
    "name": "Ranking of 2026",
}
GOOD_TENANT = {"id": "acme", "tier": "pro"}
GOOD_CLASS = {"id": "batch", "floor": 0.2, "ceiling": 0.5, "waits": True, "deadline_seconds": 60.0}


def _parse(kind: Any, fields: dict[str, Any]) -> Any:
    return records.parse(kind, fields["id"], json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (Tenant, GOOD_TENANT),
        (Project, GOOD_PROJECT),
        (ServiceAccount, GOOD_ACCOUNT),
        (Key, GOOD_KEY),
        (ClassPolicy, GOOD_CLASS),
    ],
)
def test_a_record_is_read_as_it_was_written(kind: Any, good: dict[str, Any]) -> None:
    record = _parse(kind, good)
    assert records.parse(kind, record.id, records.encode(record)) == record
    assert json.loads(records.encode(record)).items() >= good.items()


def test_a_field_of_a_later_release_is_passed_over() -> None:
    later = {**GOOD_KEY, "limits": {"requests_per_minute": 60}, "scopes": ["batches", "inference"]}
    assert _parse(Key, later).scopes == ("batches", "inference")


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        (Tenant, {**GOOD_TENANT, "id": "Acme Inc"}, "id: 'Acme Inc' is not 1 to 63 lower-case"),
        (Tenant, {**GOOD_TENANT, "tier": "gold"}, "Invalid enum value 'gold'"),
        (Tenant, {"id": "acme"}, "missing required field `tier`"),
        (Tenant, {**GOOD_TENANT, "kv_bytes": -1}, "kv_bytes: -1 is out of range: at least 0"),
        (Tenant, {**GOOD_TENANT, "kv_bytes": "1GiB"}, "Expected `int`"),
        (Tenant, {**GOOD_TENANT, "version": 0}, "version: 0 is out of range: at least 1"),
        (Tenant, {**GOOD_TENANT, "weight": -1}, "weight: -1 is out of range: 0 (as 1) to 10000"),
        (Tenant, {**GOOD_TENANT, "weight": 10_001}, "weight: 10001 is out of range"),
        (
            ClassPolicy,
            {**GOOD_CLASS, "id": "urgent"},
            "id: 'urgent' is not a priority class: use batch",
        ),
        (ClassPolicy, {**GOOD_CLASS, "floor": 0.6}, "floor: 0.6 exceeds the ceiling of 0.5"),
        (ClassPolicy, {**GOOD_CLASS, "ceiling": 1.5}, "ceiling: 1.5 is out of range: 0"),
        (ClassPolicy, {**GOOD_CLASS, "weight": -2.0}, "weight: -2 is out of range"),
        (ClassPolicy, {**GOOD_CLASS, "max_wait_seconds": 1e9}, "max_wait_seconds: 1e+09 is out"),
        (ClassPolicy, {**GOOD_CLASS, "requests_at_once": -1}, "requests_at_once: -1 is out of"),
        (ClassPolicy, {**GOOD_CLASS, "waits": "yes"}, "Expected `bool`"),
        (ClassPolicy, {**GOOD_CLASS, "version": 0}, "version: 0 is out of range: at least 1"),
        (Tenant, {**GOOD_TENANT, "context_tokens": -1}, "context_tokens: -1 is out of range: 0"),
        (Project, {**GOOD_PROJECT, "requests_at_once": -2}, "requests_at_once: -2 is out of range"),
        (Key, {**GOOD_KEY, "tokens_per_minute": 10**12 + 1}, "tokens_per_minute: 1000000000001 is"),
        (Key, {**GOOD_KEY, "requests_per_minute": "60"}, "Expected `int`"),
        (Project, {**GOOD_PROJECT, "tenant": "a/b"}, "tenant: 'a/b' is not"),
        (Project, {**GOOD_PROJECT, "id": "search"}, "id: 'search' is not proj_"),
        (ServiceAccount, {**GOOD_ACCOUNT, "name": ""}, "name: must not be empty"),
        (
            ServiceAccount,
            {**GOOD_ACCOUNT, "name": "x" * 129},
            "name: must have at most 128 printable",
        ),
        (ServiceAccount, {**GOOD_ACCOUNT, "id": "svc_1"}, "id: 'svc_1' is not svc_acct_"),
        (Key, {**GOOD_KEY, "service_account": "me"}, "service_account: 'me' is not"),
        (Key, {**GOOD_KEY, "sha256": "AAAA"}, "sha256: has 3 bytes: must have 32"),
        (Key, {**GOOD_KEY, "scopes": []}, "scopes: 0 entries are out of range: 1 to 32"),
        (Key, {**GOOD_KEY, "scopes": ["All!"]}, "scopes: 'All!' is not"),
        (Key, {**GOOD_KEY, "models": ["../x"]}, "models: '../x' is not"),
        (Key, {**GOOD_KEY, "project": "search"}, "project: 'search' is not"),
        (Key, {**GOOD_KEY, "name": "a\nb"}, "name: must have at most 128 printable"),
        (Key, {**GOOD_KEY, "expires_seconds": -5}, "expires_seconds: -5"),
        (Key, {**GOOD_KEY, "old_secret": {"sha256": DIGEST, "until_seconds": 0}}, "until_seconds"),
    ],
)
def test_a_wrong_record_is_refused_by_the_name_of_its_field(
    kind: Any, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        _parse(kind, fields)


def test_the_limits_of_a_record_have_its_subject_and_version() -> None:
    amounts = dict.fromkeys(AMOUNTS, 7) | {"version": 3}
    for kind, good, subject in (
        (Tenant, GOOD_TENANT, Subject.TENANT),
        (Project, GOOD_PROJECT, Subject.PROJECT),
        (Key, GOOD_KEY, Subject.KEY),
    ):
        found = records.limits_of(_parse(kind, {**good, **amounts}))
        title = "" if kind is Tenant else good.get("name", "")
        assert found == SubjectLimits(subject, good["id"], 7, 7, 7, 7, version=3, title=title)
        assert not list(records.limits_of(_parse(kind, good)).limits())


def test_a_record_stored_under_another_id_is_refused() -> None:
    with pytest.raises(ValueError, match="is stored as 'other'"):
        records.parse(Tenant, "other", json.dumps(GOOD_TENANT).encode())


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{", b"\xff"])
def test_what_is_no_record_at_all_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a Key"):
        records.parse(Key, GOOD_KEY["id"], value)


@pytest.mark.parametrize("floors", [(0.5, 0.3, 0.2), (0.5, 0.3, 0.3)])
def test_floors_of_all_classes_are_the_workers_at_most(floors: tuple[float, ...]) -> None:
    classes = [ClassPolicy(id="batch", floor=floor) for floor in floors]
    if sum(floors) <= 1.0:
        check_floors(classes)
    else:
        with pytest.raises(ValueError, match=r"floor: the floors of all classes add up to 1\.1"):
            check_floors(classes)


def test_every_tier_caps_the_class_of_a_request() -> None:
    assert {tier: tier.highest_priority for tier in Tier} == {
        Tier.FREE: common_pb2.PRIORITY_CLASS_INTERACTIVE,
        Tier.PRO: common_pb2.PRIORITY_CLASS_PREMIUM,
        Tier.ENTERPRISE: common_pb2.PRIORITY_CLASS_PREMIUM,
    }
