"""A certificate authority for the certificates of processes."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(minutes=5)
"""Tolerated lag of verifiers' clocks."""


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes


class Authority:
    """A CA key and the CA certificate that processes trust.

    Args:
        certificate: self-signed.
        key: its key.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def new(cls, name: str, days: float) -> "Authority":
        """Return an authority with a name and a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(key_cert_sign=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, cert: bytes, key: bytes) -> "Authority":
        """Return the authority of a certificate and its key, in PEM.

        Raises:
            ValueError: they cannot be read, or do not belong together.
        """
        certificate = x509.load_pem_x509_certificate(cert)
        private = load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not an elliptic curve (EC) key")
        if private.public_key() != certificate.public_key():
            raise ValueError("the key does not match the certificate")
        return cls(certificate, private)

    @property
    def cert(self) -> bytes:
        """Its certificate, in PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Its private key, in PEM."""
        return _pem(self._key)

    def issue(
        self,
        names: Sequence[str],
        days: float,
        *,
        uris: Sequence[str] = (),
        begins: timedelta = -CLOCK_SKEW,
    ) -> IssuedCertificate:
        """Return a new certificate for both sides of TLS, with a new key.

        Args:
            names: DNS names and IP addresses.
            days: validity, from now.
            uris: for example SPIFFE IDs.
            begins: start of the validity, relative to now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, [*names, "baton"][0][:64])])
        others = [*map(_general_name, names), *map(x509.UniformResourceIdentifier, uris)]
        builder = _builder(subject, self._certificate.subject, key, days, begins)
        builder = builder.add_extension(x509.SubjectAlternativeName(others), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(digital_signature=True), True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = builder.add_extension(issuer, False).sign(self._key, hashes.SHA256())
        return IssuedCertificate(signed.public_bytes(Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: float,
    begins: timedelta = -CLOCK_SKEW,
) -> x509.CertificateBuilder:
    now, public = datetime.now(UTC), key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
    )


def _usage(*, key_cert_sign: bool = False, digital_signature: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
