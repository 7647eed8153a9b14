"""Golden vectors: what names a block today names it in every release."""

import hashlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.kv.keys import (
    chain_root,
    full_block_key,
    pack,
    partial_block_key,
    prompt_keys,
    token_bytes,
    unpack,
)
from baton.kv.layout import GroupKind, KvGroup, Layout

LAYOUT = Layout("torch/1", "cpu", "", "float32", 2, 2, 16, 16)


def test_layout_ids_never_change() -> None:
    assert LAYOUT.layout_id.hex() == "46739b45f83b238eaf571ab2c3f9c3f9"
    other = Layout("sim/1", "cpu", "amx", "bfloat16", 32, 8, 128, 32, 2, 4)
    assert other.layout_id.hex() == "acc98df90d8847cfab175f09e0585ab3"


def test_roots_never_change() -> None:
    root = chain_root("demo", b"w" * 16, LAYOUT.layout_id, b"", b"")
    assert root.hex() == "3a311f43e27131fe4a7374ee38435607"
    root = chain_root("org/model-1", b"w" * 16, LAYOUT.layout_id, b"a" * 32, b"s" * 32)
    assert root.hex() == "82609672ee4dff64e5960f8a56983232"


def test_block_keys_never_change() -> None:
    root = chain_root("demo", b"w" * 16, LAYOUT.layout_id, b"", b"")
    keys = prompt_keys(root, list(range(40)), 16)
    assert [key.hex() for key in keys.full] == [
        "fa8087f101e0b0c16e962a558f046180",
        "230226555028f875ba6f6466086f0659",
    ]
    assert keys.partial is not None
    assert keys.partial.hex() == "1cabe0758bb32c440182f8fad73a61f2"
    assert prompt_keys(root, [0, 2**32 - 1], 2).full[0].hex() == "36d40a5f796464b2e9231a4357a9944e"


def test_the_formula_is_the_documented_one() -> None:
    root = chain_root("m", b"w", LAYOUT.layout_id, b"", b"salt")
    fields = [b"m", b"w", LAYOUT.layout_id, b"", b"salt"]
    text = b"baton.kv.1/root\0" + b"".join(struct.pack("<I", len(f)) + f for f in fields)
    assert root == hashlib.sha256(text).digest()[:16]
    tokens = struct.pack("<3I", 1, 2, 70000)
    full = hashlib.sha256(b"baton.kv.1/full\0" + root + tokens).digest()[:16]
    assert prompt_keys(root, [1, 2, 70000], 3).full == (full,)
    count = struct.pack("<I", 3)
    partial = hashlib.sha256(b"baton.kv.1/part\0" + root + count + tokens).digest()[:16]
    assert prompt_keys(root, [1, 2, 70000], 4).partial == partial


@given(st.lists(st.integers(0, 2**32 - 1), max_size=70), st.integers(1, 20))
def test_a_prompt_has_one_key_per_block(tokens: list[int], block_tokens: int) -> None:
    keys = prompt_keys(b"r" * 16, tokens, block_tokens)
    assert len(keys.full) == len(tokens) // block_tokens
    assert (keys.partial is None) == (len(tokens) % block_tokens == 0)
    assert len(set(keys.all)) == len(keys.all) == -(-len(tokens) // block_tokens)
    # A longer prompt begins with the same full keys.
    assert prompt_keys(b"r" * 16, [*tokens, 7], block_tokens).full[: len(keys.full)] == keys.full


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.data())
def test_any_difference_changes_the_key(tokens: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tokens) - 1))
    other = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    previous, data_bytes = b"p" * 16, token_bytes(tokens)
    assert full_block_key(previous, data_bytes) != full_block_key(previous, token_bytes(other))
    assert full_block_key(previous, data_bytes) != full_block_key(b"q" * 16, data_bytes)
    assert full_block_key(previous, data_bytes) != partial_block_key(previous, data_bytes)


def test_fields_of_a_root_do_not_run_into_each_other() -> None:
    assert chain_root("ab", b"c", b"", b"", b"") != chain_root("a", b"bc", b"", b"", b"")
    assert chain_root("a", b"", b"b", b"", b"") != chain_root("a", b"b", b"", b"", b"")


def test_each_field_of_a_layout_changes_its_id() -> None:
    values = dict(vars(LAYOUT))
    values.pop("layout_id", None)
    values.pop("groups")
    for name, value in values.items():
        changed = {**values, name: value + 1 if isinstance(value, int) else value + "x"}
        assert Layout(**changed).layout_id != LAYOUT.layout_id, name


def test_groups_change_the_id_of_a_layout_that_has_them() -> None:
    groups = (KvGroup(GroupKind.FULL, 64), KvGroup(GroupKind.WINDOW, 64, 128))
    layouts = [
        replace(LAYOUT, groups=groups),
        replace(LAYOUT, groups=groups[:1]),
        replace(LAYOUT, groups=groups[1:]),
        replace(LAYOUT, groups=(groups[0], KvGroup(GroupKind.WINDOW, 64, 129))),
        replace(LAYOUT, groups=(groups[0], KvGroup(GroupKind.CHUNK, 64, 128))),
        replace(LAYOUT, groups=(groups[0], KvGroup(GroupKind.WINDOW, 65, 128))),
    ]
    assert len({layout.layout_id for layout in (LAYOUT, *layouts)}) == 7
    assert layouts[0].layout_id.hex() == "5d249ed1c61c5cf492e75095d58b0080"


@pytest.mark.parametrize(
    ("kind", "block_bytes", "span_tokens", "text"),
    [
        (GroupKind.FULL, 64, 1, "span_tokens of a full group must be 0"),
        (GroupKind.STATE, 64, -1, "span_tokens of a state group must be 0"),
        (GroupKind.WINDOW, 64, 0, "span_tokens of a window group must be above 0"),
        (GroupKind.CHUNK, 64, -2, "span_tokens of a chunk group must be above 0"),
        (GroupKind.FULL, 0, 0, "block_bytes of a full group must be above 0"),
    ],
)
def test_a_group_has_what_its_kind_needs(
    kind: GroupKind, block_bytes: int, span_tokens: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        KvGroup(kind, block_bytes, span_tokens)


def test_token_ids_outside_of_u32_are_refused() -> None:
    for token in (-1, 2**32):
        with pytest.raises(OverflowError):
            token_bytes([token])


def test_packed_keys_come_back() -> None:
    keys = [bytes([number]) * 16 for number in range(3)]
    assert unpack(pack(keys)) == keys
    for count in (0, 1, 63, 64, 65, 200):
        many = [number.to_bytes(16, "big") for number in range(count)]
        assert unpack(pack(many)) == many
    with pytest.raises(ValueError, match="multiple of 16"):
        unpack(b"x" * 17)
