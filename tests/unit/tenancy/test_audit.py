"""An audit record tells what changed, and no secret."""

from msgspec.structs import replace

from baton.tenancy.records.audit import difference, record_id
from baton.tenancy.records.tenants import OldSecret, Tier
from tests.support.tenancy import key, project, tenant


def test_of_a_change_only_what_changed_is_told() -> None:
    before = tenant(kv_bytes=5, version=1)
    after = replace(before, tier=Tier.FREE, kv_bytes=0, version=2)
    assert difference(before, after) == ({"tier": "pro", "kv_bytes": 5}, {"tier": "free"})
    made = project(created_seconds=3)
    assert difference(None, made) == (
        {},
        {"id": made.id, "tenant": "acme", "name": "search", "created_seconds": 3},
    )


def test_a_rotation_is_told_without_secrets_or_digests() -> None:
    before, _ = key()
    after = replace(key()[0], old_secret=OldSecret(before.sha256, 9), version=2)
    told = difference(before, after)
    assert told == ({"secret": "replaced"}, {"secret": "new"})
    (_, made) = difference(None, after)
    assert not {"sha256", "old_secret", "secret"} & made.keys()


def test_a_record_is_bounded() -> None:
    many, _ = key(models=tuple(f"{'m' * 90}{n}" for n in range(256)))
    _, told = difference(None, many)
    assert told["models"].endswith(" bytes")
    assert len(str(told)) < 2000


def test_ids_sort_as_changes_were_made() -> None:
    ids = [record_id(number) for number in (1, 9, 10, 16, 255, 256, 10**12)]
    assert ids == sorted(ids)
    assert ids[0] == "audit_0000000000000001"
