"""Options of `baton route explain` that name usage records; what reads them is imported later."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class RecordOptions:
    """Where usage records are, besides what routers keep."""

    path: Annotated[
        Path | None,
        typer.Option(
            help="Directory of usage records as JSONL files.",
            envvar="BATON_USAGE_JSONL_PATH",
        ),
    ] = None
    clickhouse_url: Annotated[
        str,
        typer.Option(
            help="ClickHouse's HTTP address with the tables of clickhouse.sql; user and password "
            "may be in it.",
            envvar="BATON_CLICKHOUSE_URL",
        ),
    ] = ""
