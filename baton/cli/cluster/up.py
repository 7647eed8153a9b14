"""`baton up`: a local cluster that runs until a signal."""

import asyncio

from rich.console import Console

import baton
from baton.cli.admin.tenancy.commands import ensure_default_tenant
from baton.cli.cluster.local.cluster import RunningCluster, run
from baton.cli.cluster.local.models.find import find_models
from baton.cli.cluster.local.output.banner import banner
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import ClusterOptions
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.cluster.tenants import DEFAULT_TENANT
from baton.tenancy.admin.tenants import DEFAULT_PROJECT, Administration
from baton.tenancy.records.tenants import Scope


def up(options: ClusterOptions, console: Console, errors: Console) -> None:
    """Start a cluster, print how to use it, and keep it running until a signal.

    Raises:
        CommandError: it cannot start.
    """

    async def serve(cluster: RunningCluster) -> None:
        key = await first_key(cluster.etcd, options.cluster) if options.auth == "keys" else ""
        for line in banner(cluster, key, console.width if console.is_terminal else None):
            console.print(line, soft_wrap=True, highlight=False)
        await asyncio.Event().wait()

    models = find_models(options)
    console.print(f"Starting Baton {baton.__version__} …")
    ended = run(options, models, serve, errors)
    console.print(f"Stopped. Logs: {ended.logs}", soft_wrap=True, highlight=False)


async def first_key(endpoints: tuple[str, ...], cluster: str) -> str:
    """Create the first API key of a cluster and return its secret; empty: it already has keys.

    Raises:
        CommandError: etcd does not respond.
    """
    try:
        async with Etcd(endpoints) as etcd:
            admin = Administration(etcd, cluster)
            if await admin.keys():
                return ""
            await ensure_default_tenant(admin)
            project = await admin.find_project(DEFAULT_TENANT, DEFAULT_PROJECT)
            return (await admin.create_key(project, tuple(Scope), name="baton up"))[1]
    except EtcdError as error:
        raise CommandError(f"The API key cannot be created: {error}.", EXIT_FAILED) from error
