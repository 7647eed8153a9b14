"""The options of `baton usage`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.shared.options import ConfigFile, EtcdOptions


class By(StrEnum):
    """What is told apart beside projects."""

    DAY = "day"
    KEY = "key"
    MODEL = "model"


@dataclass(frozen=True)
class UsageOptions(EtcdOptions):
    """Which records are summed up and how; etcd has the names of projects."""

    path: Annotated[
        Path | None,
        typer.Option(help="Record files. Default: state.url, or usage.jsonl_path of frontends."),
    ] = None
    state_url: StateUrl = ""
    since: Annotated[str, typer.Option(help="First day (UTC), as 2026-11-23.")] = ""
    until: Annotated[str, typer.Option(help="Last day, likewise.")] = ""
    tenant: Annotated[str, typer.Option(help="Only of this tenant.")] = ""
    project: Annotated[str, typer.Option(help="Only of this project, by name or id.")] = ""
    by: Annotated[
        list[By] | None,
        typer.Option(help="Beside projects: day, key or model; several times. Default: day."),
    ] = None
    config: ConfigFile = None
