"""Options of `baton models pull`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class PullOptions:
    """Where a model is, where it goes, and how it is downloaded."""

    source: Annotated[
        str,
        typer.Argument(
            help="hf://ORGANIZATION/NAME[@REVISION], s3://BUCKET/PREFIX, "
            "https://HOST/DIRECTORY, or a directory.",
            show_default=False,
        ),
    ]
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Output directory; with --cache a symbolic link into the cache. Default: only "
            "the cache.",
            show_default=False,
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Directory of models that revisions share. Default without DIRECTORY: "
            "~/.cache/baton/models.",
            envvar="BATON_MODELS_CACHE",
        ),
    ] = None
    keep: Annotated[
        int, typer.Option(help="Revisions of a source that the cache keeps.", min=1, max=1000)
    ] = 2
    include: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of the files to download. Default: what serving needs."),
    ] = None
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of files to leave out.")] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a token for hf:// or https://. Default for hf://: HF_TOKEN.",
        ),
    ] = None
    secrets: Annotated[
        Path | None,
        typer.Option(
            help="Directory in which a file `token` is such a token, and a file `credentials` has "
            "keys for s3:// in AWS's format; neither need exist.",
            envvar="BATON_MODELS_SECRETS",
        ),
    ] = None
    endpoint: Annotated[
        str,
        typer.Option(
            help="Address of the hub or of the S3 server. Default: HF_ENDPOINT, AWS_ENDPOINT_URL, "
            "or the public ones.",
        ),
    ] = ""
    parallel: Annotated[
        int, typer.Option(help="Files to download at the same time.", min=1, max=32)
    ] = 4
    attempts: Annotated[
        int, typer.Option(help="Attempts in a row without progress.", min=1, max=100)
    ] = 6
    read_seconds: Annotated[
        float, typer.Option(help="Time until the next bytes arrive.", min=0.1, max=3600)
    ] = 30.0
    lock_seconds: Annotated[
        float,
        typer.Option(help="Time to wait for another process that downloads the same model.", min=0),
    ] = 3600.0
