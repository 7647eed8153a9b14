"""The statements of summaries."""

EXISTS = "select to_regclass('compactions') is not null as exists"

LATEST = """
select c.last_item, c.first_item, c.items, c.tokens, c.body, c.lease_until > now() as running,
    c.error
from unnest($2::uuid[], $3::uuid[]) as part(conversation, last_item)
join compactions c on c.tenant = $1 and c.conversation = part.conversation
    and c.last_item <= part.last_item
order by c.last_item desc limit $4
"""
"""Those of a path. Values: tenant, conversations, their last items, limit."""

CLAIM = """
insert into compactions as known (tenant, conversation, last_item, first_item, conversations, items,
    tokens, owner, lease_until)
select $1, $2, $3, $4, $5, $6, $7, $8, now() + $9 * interval '1 second'
from conversations where tenant = $1 and id = $2
on conflict (tenant, conversation, last_item) do update
set first_item = excluded.first_item, conversations = excluded.conversations,
    items = excluded.items, tokens = excluded.tokens, owner = excluded.owner,
    lease_until = excluded.lease_until, error = ''
where known.body is null and known.lease_until < now()
returning owner
"""

WRITE = """
update compactions set body = $5
where tenant = $1 and conversation = $2 and last_item = $3 and owner = $4 and body is null
returning owner
"""

RELEASE = """
update compactions set owner = '', error = $5, lease_until = now() + $6 * interval '1 second'
where tenant = $1 and conversation = $2 and last_item = $3 and owner = $4 and body is null
"""

DELETE_COVERING = """
delete from compactions where tenant = $1 and last_item >= $4 and $3 = any(conversations)
    and exists (select from conversations where tenant = $1 and project = $2 and id = $3)
"""

DELETE_OLD = "delete from compactions where first_item < $1"
