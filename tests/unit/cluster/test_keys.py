"""Keys and records in etcd."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.cluster import keys
from baton.internal.v1.cluster_pb2 import ROLE_DECODE, ROLE_UNSPECIFIED, Instance, TenantPolicy


def test_members_range_holds_instances_and_models_and_nothing_else():
    start, end = keys.members_range("blue")
    assert start <= keys.instance("blue", "a") < end
    assert start <= keys.model("blue", "org/tiny", "ff.ff") < end
    others = (keys.salts, keys.tenancy, keys.tenants, keys.key_uses, keys.refused)
    assert not [one for one in others if start <= one("blue") + "a" < end]
    assert not start <= keys.audit("blue", "acme") < end
    assert not start <= keys.instance("blue2", "a") < end
    assert not start <= keys.instance("blu", "a") < end


@given(prefix=st.text("ab/~", min_size=1), rest=st.text("ab/~"))
def test_prefix_end_is_after_the_prefix_and_all_that_begin_with_it(prefix, rest):
    end = keys.prefix_end(prefix)
    assert prefix <= prefix + rest < end
    assert not end.startswith(prefix)


def test_records_are_json_with_the_names_of_the_protos():
    record = Instance(id="w1", role=ROLE_DECODE, layout_id=b"x" * 16, http_address="h:1")
    text = keys.encode(record).decode()
    assert '"http_address": "h:1"' in text
    assert '"role": "ROLE_DECODE"' in text
    assert keys.decode(Instance, text.encode()) == record


def test_field_of_a_later_release_is_ignored():
    assert keys.decode(Instance, b'{"id": "w1", "born_later": 1}') == Instance(id="w1")


def test_role_of_a_later_release_is_none_of_ours():
    record = keys.decode(Instance, b'{"id": "w1", "role": "ROLE_BORN_LATER"}')
    assert (record.id, record.role) == ("w1", ROLE_UNSPECIFIED)


@pytest.mark.parametrize("value", [b"", b"{", b"7", b"\xff", b'{"cache_salt": 1}'])
def test_what_is_no_record_is_a_value_error(value):
    with pytest.raises(ValueError, match="not a TenantPolicy"):
        keys.decode(TenantPolicy, value)


def test_every_record_lasts_or_is_written_again():
    """A new kind of record belongs to a backup, or it does not: `keys.lasting` says so."""
    transient = {keys.instances("blue"), keys.kept("blue"), keys.models("blue")}
    transient |= {keys.demand("blue"), keys.refused("blue"), keys.turns("blue")}
    transient |= {keys.pending("blue")}
    prefixes = {
        made
        for name, make in vars(keys).items()
        if inspect.isfunction(make) and list(inspect.signature(make).parameters) == ["cluster"]
        if isinstance(made := make("blue"), str)
    }
    assert transient < prefixes
    lasting = keys.lasting("blue")
    assert not [one for one in transient if one.startswith(lasting)]
    rest = {one for one in prefixes - transient if not one.startswith(lasting)}
    assert not rest, "add these to keys.lasting, or here"
    assert keys.audit("blue", "acme").startswith(lasting)
    assert keys.tenant("blue", "acme").startswith(lasting)
