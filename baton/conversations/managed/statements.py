"""The statements of managed conversations, as those of `baton.conversations.statements`."""

from baton.conversations.statements import HISTORY

CREATE = """
with made as (
    insert into conversations (tenant, project, id, hidden, last_item, total_items, total_bytes,
        metadata)
    values ($1, $2, $3, false, $4, cardinality($5::uuid[]), $7, $8)
    returning id
), written as (
    insert into items (tenant, conversation, id, body)
    select $1, made.id, item.id, item.body
    from made, unnest($5::uuid[], $6::text[]) as item(id, body)
)
select id from made
"""
"""Values: tenant, project, conversation, last item, items' ids, items' bodies, their bytes,
metadata."""

CREATE_WITHIN = CREATE.replace(
    "values ($1, $2, $3, false, $4, cardinality($5::uuid[]), $7, $8)",
    """select $1, $2, $3, false, $4, cardinality($5::uuid[]), $7, $8
    where (select coalesce(sum(conversations), 0) from tenant_storage
        where tenant = $1 and month = 0) < $9""",
)
"""As CREATE, while the tenant has fewer conversations than the further value."""

CONVERSATION = """
select id, version, last_item, total_items, total_bytes, metadata from conversations
where tenant = $1 and project = $2 and id = $3 and not hidden
"""

HISTORY_OF_CONVERSATION = (
    """
select c.id, c.version, c.last_item, c.total_items, c.total_bytes, c.metadata, history.*
from conversations c"""
    + HISTORY.format(
        conversation="c.id",
        last_item="c.last_item",
        whole="c.last_item <= $5 and c.total_items <= $6 and c.total_bytes <= $7",
    )
    + """
where c.tenant = $1 and c.project = $2 and c.id = $3 and not c.hidden
"""
)
"""A conversation, and its items if they are `whole`: all of them between two ids. Further values:
these; the most items and bytes."""

RECENT = """
select id, version, last_item, total_items, total_bytes, metadata from conversations
where tenant = $1 and project = $2 and id < $3 and not hidden order by id desc limit $4
"""

UPDATE = """
update conversations set metadata = $4
where tenant = $1 and project = $2 and id = $3 and not hidden
returning id, version, last_item, total_items, total_bytes, metadata
"""

ADD_ITEMS = """
with moved as (
    update conversations set version = version + 1, last_item = $4,
        total_items = total_items + cardinality($5::uuid[]), total_bytes = total_bytes + $7
    where tenant = $1 and project = $2 and id = $3 and not hidden and version = $8
    returning id
), written as (
    insert into items (tenant, conversation, id, body)
    select $1, moved.id, item.id, item.body
    from moved, unnest($5::uuid[], $6::text[]) as item(id, body)
)
select id from moved
"""
"""Values as of CREATE, with the version instead of metadata."""

PAGE = """
select id, body from items
where tenant = $1 and conversation = $2 and id between $3 and $4 order by id {order} limit $5
"""

ITEM = "select body from items where tenant = $1 and conversation = $2 and id = $3"

DELETE_ITEM = """
with gone as (
    delete from items where tenant = $1 and conversation = $3 and id = $4
        and exists (
            select from conversations
            where tenant = $1 and project = $2 and id = $3 and not hidden
        )
    returning octet_length(body) as bytes
)
update conversations set version = version + 1, total_items = total_items - 1,
    total_bytes = total_bytes - gone.bytes
from gone where tenant = $1 and project = $2 and id = $3
returning id, version, last_item, total_items, total_bytes, metadata
"""

HAS_RESPONSE = "select id from responses where tenant = $1 and project = $2 and id = $3"

LAST_RESPONSE = """
select body from responses where tenant = $1 and project = $2 and conversation = $3
    and id = any($4::uuid[]) and id between $3 and $5 order by id desc limit 1
"""

HIDE = """
update conversations set hidden = true, version = version + 1
where tenant = $1 and project = $2 and id = $3 and not hidden
returning last_item, prefix_conversations
"""
"""Turns that are being computed do not move it on any more."""

ITEM_IDS = "select id from items where tenant = $1 and conversation = $2 and id between $2 and $3"

DELETE_RESPONSES = """
with gone as (
    delete from responses
    where tenant = $1 and conversation = $2 and id between $2 and $3 {among} returning id
)
update conversations set uses = uses - (select count(*) from gone)
where tenant = $1 and id = $2 returning uses
"""
AMONG = "and id = any($4::uuid[])"
