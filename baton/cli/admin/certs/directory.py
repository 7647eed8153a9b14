"""The directory of `baton certs`: an authority, and a folder per role for its processes.

DIR/ca.crt, ca.key              the authorities, the newest first, and the newest one's key
DIR/<role>/tls.crt, tls.key     a certificate that the newest one signed when it was made
DIR/<role>/ca.crt               the authorities that this role's processes trust
"""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from baton.cli.admin.certs.authority import Authority
from baton.rpc.tls.identity import ROLES

ETCD = "etcd"
"""Not a role of Baton: the name of the folder for etcd's certificate."""
_CA_DAYS = 3650.0


class CertificateDirectory:
    """The files of a cluster's authority.

    Args:
        path: of the directory; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bundle, self._key = path / "ca.crt", path / "ca.key"

    @property
    def exists(self) -> bool:
        """Whether the authority exists."""
        return self._bundle.exists()

    def authorities(self) -> list[bytes]:
        """Return the authorities' certificates in PEM, the newest first.

        Raises:
            OSError: the file cannot be read.
            ValueError: it contains something else.
        """
        found = x509.load_pem_x509_certificates(self._bundle.read_bytes())
        return [certificate.public_bytes(Encoding.PEM) for certificate in found]

    def add_authority(self) -> None:
        """Create a new authority and have every role trust it in addition to those before.

        No certificate is signed with it yet: first all processes have to trust it.
        """
        before = self.authorities() if self.exists else []
        authority = Authority.new(f"Baton CA {secrets.token_hex(4)}", _CA_DAYS)
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self._key, authority.key, 0o600)
        self._trust([authority.cert, *before])

    def drop_old_authorities(self) -> None:
        """Have every role trust only the newest authority."""
        self._trust(self.authorities()[:1])

    def issue(self, trust_domain: str, days: float, etcd_hosts: Sequence[str]) -> None:
        """Create a new certificate for each role and for etcd, signed by the newest authority.

        Args:
            trust_domain: trust domain of the role names.
            days: validity of the certificates.
            etcd_hosts: names and addresses of etcd.
        """
        bundle = self.authorities()
        authority = Authority.load(bundle[0], self._key.read_bytes())
        for name in (*sorted(ROLES), ETCD):
            folder = self.path / name
            folder.mkdir(exist_ok=True)
            names = etcd_hosts if name == ETCD else [f"{name}.{trust_domain}"]
            issued = authority.issue(names, days)
            _write(folder / "tls.key", issued.key, 0o600)
            _write(folder / "tls.crt", issued.cert, 0o644)
        self._trust(bundle)

    def _trust(self, authorities: Sequence[bytes]) -> None:
        bundle = b"".join(authorities)
        for folder in (self.path, *(self.path / name for name in (*ROLES, ETCD))):
            if folder.exists():
                _write(folder / "ca.crt", bundle, 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically: readers see either the old or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    new.chmod(mode)
    new.replace(path)
