"""The statements of endpoints."""

_SHOWN = "id, name, url, event_types, hint, updated"

CREATE = f"""
insert into webhook_endpoints (tenant, project, id, name, url, event_types, secret, hint, updated)
select $1, $2, $3, $4, $5, $6, $7, $8, $9
where (select count(*) from webhook_endpoints where tenant = $1 and project = $2) < $10
returning {_SHOWN}
"""
"""Values: tenant, project, id, name, URL, types, secret, hint, time, the most of a project."""

ENDPOINT = f"""
select {_SHOWN} from webhook_endpoints where tenant = $1 and project = $2 and id = $3
"""

SECRETS = """
select secret, case when old_until > $4 then old_secret else '' end from webhook_endpoints
where tenant = $1 and project = $2 and id = $3
"""

RECENT = f"""
select {_SHOWN} from webhook_endpoints
where tenant = $1 and project = $2 and id < $3 order by id desc limit $4
"""

UPDATE = f"""
update webhook_endpoints set name = coalesce($4, name), url = coalesce($5, url),
    event_types = coalesce($6, event_types),
    updated = case when (name, url, event_types) is distinct from
        (coalesce($4, name), coalesce($5, url), coalesce($6, event_types))
        then $7 else updated end
where tenant = $1 and project = $2 and id = $3
returning {_SHOWN}
"""

ROTATE = f"""
update webhook_endpoints set old_secret = case when $6::timestamptz is null then '' else secret end,
    old_until = coalesce($6, '-infinity'), secret = $4, hint = $5, updated = $7
where tenant = $1 and project = $2 and id = $3
returning {_SHOWN}
"""
"""Further values: secret, hint, until when the old one signs too (null: it does not), time."""

DELETE = """
with gone as (
    delete from webhook_endpoints where tenant = $1 and project = $2 and id = $3 returning id
), undelivered as (
    delete from webhook_deliveries where tenant = $1 and endpoint in (select id from gone)
)
select id from gone
"""
