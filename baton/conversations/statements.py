"""The statements of the store. Each names the tenant and the bounds of its ids as values."""

_ITEMS = """
), written as (
    insert into items (tenant, conversation, id, body)
    select $1, moved.id, item.id, item.body
    from moved, unnest($5::uuid[], $6::text[]) as item(id, body)
), answered as (
    insert into responses (tenant, project, id, conversation, last_item, inputs, total_items,
        total_bytes, status, body)
    select $1, $2, $3, moved.id, $4, $7, moved.total_items, moved.total_bytes, $8, $9 from moved
)
"""
"""Values: tenant, project, response, last item, items' ids, items' bodies, inputs, status, body,
bytes of the items."""
_END = "select id from moved\n"
_COUNTED = """
, counted as (
    insert into tenant_storage as stored (tenant, month, slot, bytes)
    select $1, {month}, mod(pg_backend_pid(), 16), $10 + octet_length($9) from moved
    on conflict (tenant, month, slot) do update set bytes = stored.bytes + excluded.bytes
)
"""

CONTINUE_TURN = (
    """
with moved as (
    update conversations set version = version + 1, uses = uses + 1, last_item = $4,
        total_items = total_items + cardinality($5::uuid[]), total_bytes = total_bytes + $10
    where tenant = $1 and project = $2 and id = $11 and version = $12
    returning id, total_items, total_bytes
"""
    + _ITEMS
    + _END
)
"""Write a turn of a conversation that has a version. Further values: conversation, version."""

APPEND_TURN = CONTINUE_TURN.replace("version = $12", "version >= $12").replace(
    "last_item = $4", "last_item = greatest(last_item, $4)"
)
"""Write a turn of a conversation that may have moved on, in the order of its id."""

BEGIN_TURN = (
    """
with moved as (
    insert into conversations (tenant, project, id, hidden, uses, last_item, total_items,
        total_bytes)
    values ($1, $2, $3, true, 1, $4, cardinality($5::uuid[]), $10)
    returning id, total_items, total_bytes
"""
    + _ITEMS
    + _END
)
"""Write a turn that begins a conversation."""

BRANCH_TURN = (
    """
with parent as (
    update conversations set uses = uses + 1
    where tenant = $1 and project = $2 and id = $11 returning id
), moved as (
    insert into conversations (tenant, project, id, hidden, uses, last_item, total_items,
        total_bytes, prefix_conversations, prefix_items)
    select $1, $2, $3, true, 1, $4, $12::bigint + cardinality($5::uuid[]),
        $13::bigint + $10::bigint, $14::uuid[], $15::uuid[]
    from parent
    returning id, total_items, total_bytes
"""
    + _ITEMS
    + _END
)
"""Write a turn that branches off a conversation. Further values: that conversation; items and bytes
before it; the prefix."""


def counting(turn: str, month: int) -> str:
    """Return a turn's statement that counts what it stores as triggers of its tables would.

    Args:
        turn: one of the statements above.
        month: of the turn, as 202701.
    """
    return turn.removesuffix(_END) + _COUNTED.format(month=month).lstrip() + _END


HISTORY = """
cross join lateral (
    select {conversation} >= $4 and {whole} as whole,
        array_agg(id) as ids, array_agg(body) as bodies
    from (
        select id, body from items
        where tenant = $1 and conversation = {conversation} and id between $4 and $5
            and id <= {last_item} and {conversation} >= $4 and {whole}
        order by id
    ) as item
) as history"""

_PATH = """
select r.conversation, r.last_item, r.total_items, r.total_bytes, c.version, c.hidden,
    c.last_item as end, c.prefix_conversations, c.prefix_items{more}
from responses r join conversations c on c.tenant = $1 and c.id = r.conversation{joined}
where r.tenant = $1 and r.project = $2 and r.id = $3
"""
PATH_OF_RESPONSE = _PATH.format(more="", joined="")
HISTORY_OF_RESPONSE = _PATH.format(
    more=", history.whole, history.ids, history.bodies",
    joined=HISTORY.format(
        conversation="r.conversation",
        last_item="r.last_item",
        whole="r.total_items <= $6 and r.total_bytes <= $7 and c.prefix_conversations = '{}'",
    ),
)
"""A path, and its items if they are `whole`: all of one conversation that began after the first
bound. Further values: the bounds of items' ids; the most items and bytes."""

RESPONSE = """
select id, conversation, last_item, inputs, status, body from responses
where tenant = $1 and project = $2 and id = $3
"""

ITEMS_BETWEEN = """
select id, body from items
where tenant = $1 and conversation = $2 and id between $3 and $4 order by id
"""

ITEMS_OF_PARTS = """
select item.id, item.body
from unnest($2::uuid[], $3::uuid[]) with ordinality as part(conversation, last_item, number)
cross join lateral (
    select id, body from items
    where tenant = $1 and conversation = part.conversation
        and id between part.conversation and part.last_item and id between $4 and $5
) as item
order by part.number, item.id
"""
"""Values: tenant, conversations, their last items, the bounds of all of them."""

NAMED_ITEMS = """
select i.id, i.body from responses r
join items i on i.tenant = $1 and i.conversation = r.conversation and i.id between $5 and $6
where r.tenant = $1 and r.project = $2 and r.id = any($3::uuid[]) and r.id between $5 and $6
    and i.id = any($4::uuid[]) and i.id > r.id and i.id <= r.last_item
"""
"""Values: tenant, project, responses, items, the bounds of all of them."""

DELETE_RESPONSE = """
delete from responses where tenant = $1 and project = $2 and id = $3 returning conversation
"""

RELEASE = """
update conversations set uses = uses - 1 where tenant = $1 and id = $2
returning uses, hidden, last_item, prefix_conversations
"""
"""Count a use of a conversation less."""

DELETE_ITEMS = """
delete from items where tenant = $1 and conversation = $2 and id between $3 and $4
"""

DELETE_CONVERSATION = "delete from conversations where tenant = $1 and id = $2"
