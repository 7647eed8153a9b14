"""One look-up tells whose key a secret is, or why it is not taken."""

import dataclasses

import pytest

from baton.errors import BatonError, Reason
from baton.tenancy.directory import directory as sentences
from baton.tenancy.directory.directory import Directory
from baton.tenancy.limits.spec import BUDGET
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.tenants import (
    Key,
    OldSecret,
    Project,
    Record,
    Scope,
    Tenant,
    Tier,
    encode,
)
from baton.v1 import common_pb2
from tests.support.tenancy import ACCOUNT, KEY, PROJECT, account, directory, key, project, tenant

NOW = 1_700_000_000.0


@dataclasses.dataclass
class Refused:
    """A case: what is in the directory, and the sentence."""

    sentence: str
    key: Key
    secret: bytes
    tenant: Tenant = dataclasses.field(default_factory=tenant)
    project: Project | None = dataclasses.field(default_factory=project)
    others: tuple[Record, ...] = ()


def _refused() -> dict[str, Refused]:
    good, secret = key()
    late, late_secret = key(expires_seconds=int(NOW))
    revoked, revoked_secret = key(revoked_seconds=5)
    old = new_secret().encode()
    owned, owned_secret = key(service_account=ACCOUNT)
    gone = (account(deleted_seconds=1),)
    rotated, _ = key(old_secret=OldSecret(digest_of(old), int(NOW)))
    return {
        "unknown": Refused(sentences.UNKNOWN, good, new_secret().encode()),
        "wrong in its last letter": Refused(
            sentences.UNKNOWN, good, secret[:-1] + (b"A" if secret[-1:] != b"A" else b"B")
        ),
        "a digest instead of the secret": Refused(sentences.UNKNOWN, good, good.sha256),
        "expired": Refused(sentences.EXPIRED, late, late_secret),
        "revoked": Refused(sentences.REVOKED, revoked, revoked_secret),
        "replaced": Refused(sentences.ROTATED, rotated, old),
        "archived": Refused(sentences.ARCHIVED, good, secret, project=project(archived_seconds=1)),
        "of a deleted account": Refused(sentences.DELETED, owned, owned_secret, others=gone),
        "without its account": Refused(sentences.DELETED, owned, owned_secret),
        "without its project": Refused(sentences.ARCHIVED, good, secret, project=None),
        "disabled": Refused(sentences.DISABLED, good, secret, tenant=tenant(disabled_seconds=1)),
        "of another tenant": Refused(sentences.DISABLED, good, secret, tenant=tenant("other")),
    }


@pytest.mark.parametrize("name", _refused())
def test_a_key_that_is_not_taken_is_refused_with_its_sentence(name: str) -> None:
    case = _refused()[name]
    known: list[Record] = [case.tenant, case.key, *case.others]
    if case.project is not None:
        known.append(case.project)
    with pytest.raises(BatonError) as caught:
        directory(*known).authenticate(digest_of(case.secret), NOW)
    assert (caught.value.reason, caught.value.message) == (Reason.INVALID_API_KEY, case.sentence)
    assert case.secret.decode("latin-1") not in str(caught.value)


def test_tenant_project_and_tier_come_from_the_key() -> None:
    mine, secret = key(expires_seconds=int(NOW) + 1)
    found = directory(tenant(), project(), mine).authenticate(digest_of(secret), NOW)
    assert (found.tenant.id, found.project.id, found.key.id) == ("acme", PROJECT, KEY)
    assert found.tenant.tier is Tier.PRO


def test_a_rotated_key_has_two_secrets_for_a_while() -> None:
    old = new_secret().encode()
    mine, secret = key(old_secret=OldSecret(digest_of(old), int(NOW) + 60))
    known = directory(tenant(), project(), mine)
    for one in (old, secret):
        assert known.authenticate(digest_of(one), NOW).key.id == KEY
    assert known.authenticate(digest_of(secret), NOW + 60).key.id == KEY
    with pytest.raises(BatonError, match=sentences.ROTATED):
        known.authenticate(digest_of(old), NOW + 60)


def test_a_change_is_in_force_at_once_and_what_is_gone_is_unknown() -> None:
    mine, secret = key()
    known = directory(tenant(), project(), mine)
    other, other_secret = key()
    known.put(f"keys/{KEY}", encode(other))
    with pytest.raises(BatonError, match=sentences.UNKNOWN):
        known.authenticate(digest_of(secret), NOW)
    assert known.authenticate(digest_of(other_secret), NOW).key.id == KEY
    known.remove(f"keys/{KEY}")
    known.remove(f"keys/{KEY}")
    with pytest.raises(BatonError, match=sentences.UNKNOWN):
        known.authenticate(digest_of(other_secret), NOW)
    assert not len(known)


def test_an_unreadable_record_leaves_the_one_before_in_force() -> None:
    mine, secret = key()
    known = directory(tenant(), project(), mine)
    with pytest.raises(ValueError, match="not a Key"):
        known.put(f"keys/{KEY}", b"{}")
    assert known.authenticate(digest_of(secret), NOW).key.id == KEY


@pytest.mark.parametrize("name", ["epoch", "keys/", "users/x", "keys"])
def test_a_name_that_is_no_records_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no record"):
        directory().put(name, b"{}")


def test_a_key_is_held_to_its_scopes_models_and_tier() -> None:
    mine, secret = key(scopes=("usage",), models=("small", "small-fr"))
    known = directory(tenant(tier=Tier.FREE), project(), mine)
    found = known.authenticate(digest_of(secret), NOW)
    found.require(Scope.USAGE)
    with pytest.raises(BatonError, match="does not have the scope 'inference'") as caught:
        found.require(Scope.INFERENCE)
    assert caught.value.reason is Reason.PERMISSION_DENIED
    found.require_model("small")
    found.require_model("small", "small-fr")
    found.require_model("large", "small-fr")
    for name, adapter, field in (("large", "", "model"), ("small", "small-de", "adapter")):
        with pytest.raises(BatonError) as caught:
            found.require_model(name, adapter)
        assert (caught.value.reason, caught.value.field) == (Reason.MODEL_NOT_ALLOWED, field)
    asked = range(common_pb2.PRIORITY_CLASS_PREMIUM + 1)
    assert [found.capped(one) for one in asked] == [0, 1, 2, 2]


def test_listings_have_what_is_there_for_administration() -> None:
    late, early = "key_f000000000000000", "key_0000000000000000"
    mine, secret = key(service_account=ACCOUNT)
    known = directory(
        *(tenant(), project(), account(), key(late)[0], mine, key(early, scopes=("admin",))[0])
    )
    assert known.authenticate(digest_of(secret), NOW).key.service_account == ACCOUNT
    assert list(known.projects_of.of("acme")) == [PROJECT]
    assert list(known.accounts_of.of(PROJECT)) == [ACCOUNT]
    assert list(known.keys_of.of(PROJECT)) == [KEY, late]
    assert list(known.admin_keys_of.of(PROJECT)) == [early]
    known.put(f"keys/{late}", encode(key(late, revoked_seconds=1)[0]))
    known.put(f"keys/{early}", encode(key(early)[0]))
    known.put(f"accounts/{ACCOUNT}", encode(account(deleted_seconds=1)))
    known.put(f"projects/{PROJECT}", encode(project(archived_seconds=1)))
    assert list(known.keys_of.of(PROJECT)) == [early, KEY]
    assert list(known.admin_keys_of.of(PROJECT)) == []
    assert list(known.accounts_of.of(PROJECT)) == []
    assert list(known.projects_of.of("acme")) == [PROJECT]
    for name in list(known.names()):
        known.remove(name)
    assert not list(known.names())
    assert not known.keys_of.of(PROJECT)
    assert not known.projects_of.of("acme")


def test_keys_share_what_is_equal_and_what_is_kept_of_that_is_bounded() -> None:
    known = Directory()
    for number in range(5000):
        key = Key(
            id=f"key_{number:016x}",
            project=PROJECT,
            sha256=digest_of(str(number).encode()),
            scopes=("inference",),
            requests_per_minute=10**9,
            tokens_per_minute=10**6 + number,
            budget_nanodollars_per_month=10**12,
        )
        known.put(f"keys/{key.id}", encode(key))
    one, other = (known.keys[f"key_{number:016x}"] for number in (10, 11))
    for field in ("project", "scopes", "models", "requests_per_minute", BUDGET):
        assert getattr(one, field) is getattr(other, field), field
    assert len(known._shared) <= 4096
