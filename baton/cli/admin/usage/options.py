"""The options of `baton usage`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.shared.options import ConfigFile, EtcdOptions


class By(StrEnum):
    """Columns to group by, in addition to projects."""

    DAY = "day"
    KEY = "key"
    MODEL = "model"


@dataclass(frozen=True)
class UsageOptions(EtcdOptions):
    """Which records to sum, and how; etcd has the names of projects."""

    path: Annotated[
        Path | None,
        typer.Option(help="Record files. Default: the frontends' state.url or usage.jsonl_path."),
    ] = None
    state_url: StateUrl = ""
    since: Annotated[str, typer.Option(help="First day in UTC, for example 2026-11-23.")] = ""
    until: Annotated[str, typer.Option(help="Last day in UTC.")] = ""
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = ""
    project: Annotated[str, typer.Option(help="Only this project, by name or id.")] = ""
    by: Annotated[
        list[By] | None,
        typer.Option(
            help="Group by day, key or model as well as project. Can be repeated. Default: day."
        ),
    ] = None
    config: ConfigFile = None
