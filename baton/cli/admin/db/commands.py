"""Implementation of `baton db …`."""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError

from baton.cli.cluster.local.files.local_clusters import find_local
from baton.cli.shared.cluster_address import ask
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import EtcdOptions
from baton.cluster.forgotten import ForgottenTenant, mark_forgotten
from baton.cluster.tenants import CacheSalts
from baton.conversations.forgetting import forget_tenant
from baton.conversations.partitions import maintain
from baton.postgres import schema
from baton.postgres.connecting import StateError, connected, place
from baton.postgres.revisions import newest
from baton.settings import FrontendSettings, StartupError, StateSettings, load
from baton.settings.names import CONFIG_FLAG
from baton.usage.retention import delete_before

OPTIONAL_SECONDS = 60.0
"""Longest wait for an optional upgrade."""
NOTICE_SECONDS = 1.0
"""Time for frontends to learn that a tenant is deleted, and to end a statement."""
R = TypeVar("R")


def upgrade(url: str, config: Path | None, cluster: str, *, optional: bool = False) -> str:
    """Upgrade the schema; return the result as a sentence.

    Args:
        url: URL of the database; empty: the frontends' `state.url`, else that of the cluster that
            runs here.
        config: a settings file; None: the one that BATON_CONFIG names, if any.
        cluster: name of the cluster that runs here; empty: the only one.
        optional: failing to upgrade within OPTIONAL_SECONDS is not an error; the sentence gives the
            reason.

    Raises:
        CommandError: no database is named, it cannot be reached, or its schema is newer.
    """
    settings = settings_of(url, config, cluster)
    seconds = OPTIONAL_SECONDS if optional else schema.UPGRADE_SECONDS
    try:
        done = _run(_upgrade(settings, seconds))
    except CommandError as error:
        if not optional or error.code != EXIT_FAILED:
            raise
        return f"Not upgraded: {error}"
    if done.before == done.after:
        return f"{place(settings)} already has schema {done.after}."
    return f"Upgraded {place(settings)} from {done.before} to {done.after}."


def status(url: str, config: Path | None, cluster: str) -> str:
    """Return the schema's state as a sentence. Arguments are those of `upgrade`.

    Raises:
        CommandError: no database is named, it cannot be reached, or has another schema than this
            release needs.
    """
    settings = settings_of(url, config, cluster)
    if problem := _run(schema.problem(settings)):
        raise CommandError(f"{place(settings)}: {problem}.", EXIT_FAILED)
    revision = _run(schema.current(settings))
    what = "needs" if revision == newest() else "can use"
    return f"{place(settings)} has schema {revision}, which this release {what}."


def prune(before: str, url: str, config: Path | None, cluster: str) -> str:
    """Delete the usage records of requests that began before a day; return the number as a
    sentence.

    Raises:
        CommandError: the day is invalid, no database is named, or it cannot be reached.
    """
    try:
        day = date.fromisoformat(before)
    except ValueError:
        raise CommandError(
            f"--before is {before!r}: it must be a day, for example 2026-11-23."
        ) from None
    settings = settings_of(url, config, cluster)
    count = _run(delete_before(settings, day))
    return f"Deleted {count} usage records older than {day} from {place(settings)}."


def forget(
    tenant: str,
    url: str,
    config: Path | None,
    options: EtcdOptions,
    *,
    keep_usage: bool,
    rewrite: bool,
) -> list[str]:
    """Replace the salt of a tenant's KV, and delete its rows; return the results as sentences.

    Stores drop its KV, and frontends what they have not stored of it: they learn it first.

    Raises:
        CommandError: no database is named, it cannot be reached, or etcd cannot.
    """
    settings = settings_of(url, config, options.cluster)
    keep = ("usage_records",) if keep_usage else ()
    _run(schema.current(settings))  # frontends drop nothing for a database that is away
    address = options.resolve()
    # First: what stores evict from here on is found by no key that is made now.
    replaced = ask(address.endpoints, lambda etcd: CacheSalts(etcd, address.name).replace(tenant))
    mark = ForgottenTenant(int(time.time() * 1000), not keep_usage)
    ask(address.endpoints, lambda etcd: mark_forgotten(etcd, address.name, tenant, mark))
    time.sleep(NOTICE_SECONDS)
    deleted = _run(forget_tenant(settings, tenant, keep=keep, rewrite=rewrite))
    counts = ", ".join(f"{count} of {table}" for table, count in deleted.items())
    said = ["Frontends drop what they have not stored of it."]
    said += [f"Deleted rows of tenant {tenant} from {place(settings)}: {counts}."]
    what = "Replaced the salt of its KV" if replaced else "It has no salt of KV"
    return [*said, f"{what} (cluster {address.name})."]


def at(url: str) -> StateSettings:
    """Return the settings of a database given by its URL.

    Raises:
        CommandError: it is not such a URL; its text is not shown, because it may contain a
            password.
    """
    try:
        return StateSettings(url=SecretStr(url))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CommandError(f"--state-url {reason}.") from None


def settings_of(url: str, config: Path | None, cluster: str) -> StateSettings:
    """Return the settings of the database that is named. Arguments are those of `upgrade`.

    Raises:
        CommandError: no database is named, or the URL is not one.
    """
    if url:
        return at(url)
    arguments = [] if config is None else [f"{CONFIG_FLAG}={config}"]
    try:
        settings = load(FrontendSettings, arguments, "frontend").state
    except StartupError as error:
        raise CommandError(str(error)) from error
    if settings.url.get_secret_value():
        return settings
    local = find_local(cluster)
    if local is not None and local.state_url:
        return StateSettings(url=SecretStr(local.state_url))
    none = f"Cluster {local.cluster!r} has no database" if local else "No database is configured"
    raise CommandError(f"{none}: set --state-url, BATON_STATE_URL or BATON_STATE_URL_FILE.")


async def _upgrade(settings: StateSettings, seconds: float) -> schema.Upgrade:
    """Upgrade the schema, and make the months that are needed soon."""
    done = await schema.upgrade(settings, seconds)
    async with connected(settings) as connection:
        await maintain(connection, datetime.now(UTC).date())
    return done


def _run(work: Coroutine[Any, Any, R]) -> R:
    try:
        return asyncio.run(work)
    except StartupError as error:
        raise CommandError(str(error)) from error
    except StateError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
