"""The statements of stored chat completions. Each names the tenant and the bounds of its ids."""

INSERT = """
insert into completions (tenant, project, id, model, metadata, messages, body)
values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing
"""

GET = """
select id, metadata, body from completions where tenant = $1 and project = $2 and id = $3
"""

MESSAGES = "select messages from completions where tenant = $1 and project = $2 and id = $3"

UPDATE = """
update completions set metadata = $4 where tenant = $1 and project = $2 and id = $3
returning id, metadata, body
"""

DELETE = """
delete from completions where tenant = $1 and project = $2 and id = $3 returning id
"""

_LIST = """
select id, metadata, body from completions
where tenant = $1 and project = $2 and id > $3 and id < $4
    and ($5 = '' or model = $5) and metadata @> $6::text[]
"""
LIST_ASCENDING = _LIST + "order by id limit $7"
LIST_DESCENDING = _LIST + "order by id desc limit $7"
"""Values: tenant, project, both bounds (exclusive), model, pairs of metadata, the most rows."""
