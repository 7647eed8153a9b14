"""The options of `baton backup` and `baton restore`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import EtcdOptions, endpoints

if TYPE_CHECKING:
    from baton.cli.shared.cluster_address import ClusterAddress

PASSPHRASE_VARIABLE = "BATON_BACKUP_PASSPHRASE"
MIN_CHARACTERS = 12
_MAX_BYTES = 4096


@dataclass(frozen=True)
class SealedOptions(EtcdOptions):
    """The cluster, and where the passphrase is."""

    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with the passphrase. Default: the variable {PASSPHRASE_VARIABLE}.",
            envvar="BATON_BACKUP_PASSPHRASE_FILE",
        ),
    ] = None

    def passphrase(self) -> bytes:
        """Return the passphrase, without the line break at its end.

        Raises:
            CommandError: there is none, two are named, or it cannot be read or is too short.
        """
        text = os.environ.get(PASSPHRASE_VARIABLE, "")
        if self.passphrase_file is not None:
            if text:
                raise CommandError(
                    f"--passphrase-file and {PASSPHRASE_VARIABLE} name two passphrases: set only "
                    "one of them."
                )
            text = _read(self.passphrase_file)
        elif not text:
            raise CommandError(
                f"A backup is sealed with a passphrase: set --passphrase-file or "
                f"{PASSPHRASE_VARIABLE}."
            )
        text = text.rstrip("\r\n")
        if len(text) < MIN_CHARACTERS:
            raise CommandError(
                f"The passphrase has {len(text)} characters: it must have at least "
                f"{MIN_CHARACTERS}, for example those of `openssl rand -base64 32`."
            )
        return text.encode()


@dataclass(frozen=True)
class RestoreOptions(SealedOptions):
    """The cluster to restore into, and where the passphrase is."""

    def resolve_or(self, name: str) -> "ClusterAddress":
        """Return the selected cluster, or the one of a name if none is registered in etcd.

        Raises:
            CommandError: as `EtcdOptions.resolve`.
        """
        from baton.cli.shared.cluster_address import find_cluster

        self.show_certificates()
        return find_cluster(endpoints(self.etcd_endpoint), self.cluster, default=name)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise CommandError(f"--passphrase-file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--passphrase-file {path} is not text in UTF-8.") from error
    if len(data) > _MAX_BYTES:
        raise CommandError(f"--passphrase-file {path} has more than {_MAX_BYTES} bytes.")
    return text
