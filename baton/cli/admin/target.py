"""The cluster that a command changes, and what it prints."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console

from baton.cli.shared.cluster_address import ask
from baton.cli.shared.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from baton.cli.shared.options import EtcdOptions
from baton.cli.shared.table import TextTable, show
from baton.cluster.etcd.client import Etcd
from baton.errors import BatonError, Reason
from baton.telemetry import logs
from baton.tenancy.admin.tenants import Administration

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The cluster whose records are used, and how to print them."""

    endpoints: tuple[str, ...]
    cluster: str
    console: Console
    as_json: bool

    def do(self, what: Callable[[Administration], Awaitable[T]]) -> T:
        """Run a function on the records; return its result.

        Raises:
            CommandError: the change is rejected, or etcd does not respond.
        """
        return self.read(lambda etcd: what(Administration(etcd, self.cluster)))

    def read(self, what: Callable[[Etcd], Awaitable[T]]) -> T:
        """Run a function that reads etcd; return its result.

        Raises:
            CommandError: the request is rejected, or etcd does not respond.
        """
        try:
            return ask(self.endpoints, what)
        except BatonError as error:
            failed = error.reason in (Reason.ABORTED, Reason.UNAVAILABLE)
            raise CommandError(f"{error}.", EXIT_FAILED if failed else EXIT_USAGE) from error
        except ValueError as error:
            raise CommandError(f"A record in etcd cannot be read: {error}.", EXIT_FAILED) from error

    def print(self, sentence: str, **fields: Any) -> None:
        """Print the result of a change: a sentence and the cluster, or its fields as JSON."""
        if self.as_json:
            self.console.print_json(json.dumps(fields))
        else:
            self.say(f"{sentence.removesuffix('.')} (cluster {self.cluster}).")

    def say(self, line: str) -> None:
        """Print a line unchanged."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def list(self, table: TextTable, rows: Sequence[dict[str, Any]]) -> None:
        """Print rows, as a table or as JSON."""
        if self.as_json:
            self.console.print_json(json.dumps(rows))
        else:
            show(self.console, table)


def reach(options: EtcdOptions, console: Console, as_json: bool) -> Target:
    """Return the cluster that options name.

    Raises:
        CommandError: as `EtcdOptions.resolve`, or `ChangeOptions.resolve` for options of a change.
    """
    logs.configure("tenancy", "tenancy", level="error")
    address = options.resolve()
    return Target(address.endpoints, address.name, console, as_json)
