"""Certificates of roles, signed by the test's own authority."""

from pathlib import Path
from typing import Any

from baton.cli.admin.certs.authority import Authority, IssuedCertificate
from baton.settings import TlsSettings


def write(
    directory: Path, issued: IssuedCertificate, *authorities: Authority, **settings: Any
) -> TlsSettings:
    """Write a certificate, its key and the trusted authorities; return the settings for them."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tls.crt").write_bytes(issued.cert)
    (directory / "tls.key").write_bytes(issued.key)
    (directory / "ca.crt").write_bytes(b"".join(authority.cert for authority in authorities))
    return settings_in(directory, **settings)


def settings_in(directory: Path, **settings: Any) -> TlsSettings:
    """Return the settings for the files of a directory."""
    cert, key, ca = (directory / name for name in ("tls.crt", "tls.key", "ca.crt"))
    return TlsSettings(cert=cert, key=key, ca=ca, **settings)


def role(directory: Path, authority: Authority, name: str, **settings: Any) -> TlsSettings:
    """Return settings for a new certificate of a role."""
    issued = authority.issue([f"{name}.baton"], 1)
    return write(directory / name, issued, authority, **settings)
