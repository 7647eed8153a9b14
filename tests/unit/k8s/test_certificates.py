"""What stands in for cert-manager: Secrets as Certificates ask for, and an authority replaced."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.k8s.pods.controllers.certificates import Certificates
from tests.k8s.pods.objects.manifests import Manifests
from tests.k8s.pods.objects.supported import UnsupportedError

KEY = {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}


def certificate(name, issuer, **spec):
    own = {"secretName": name, "duration": "48h", "privateKey": KEY, "issuerRef": issuer}
    metadata = {"name": name, "namespace": "baton"}
    return {"kind": "Certificate", "metadata": metadata, "spec": {**own, **spec}}


def issuer(name, **spec):
    return {"kind": "Issuer", "metadata": {"name": name, "namespace": "baton"}, "spec": spec}


AUTHORITY = {"kind": "Issuer", "name": "authority"}
OBJECTS = [
    issuer("self-signed", selfSigned={}),
    issuer("authority", ca={"secretName": "root"}),
    certificate("root", {"name": "self-signed"}, isCA=True, commonName="baton", duration="240h"),
    certificate(
        "decode-tls",
        AUTHORITY,
        dnsNames=["decode.baton"],
        uris=["spiffe://baton/decode"],
        usages=["server auth", "digital signature", "client auth"],
    ),
    certificate(
        "etcd-tls",
        AUTHORITY,
        dnsNames=["etcd", "*.etcd"],
        ipAddresses=["127.0.0.1"],
        usages=["server auth", "digital signature", "client auth"],
    ),
    {"kind": "Service", "metadata": {"name": "etcd", "namespace": "baton"}, "spec": {}},
]
DECODE, ETCD = 3, 4


@pytest.fixture
def certificates():
    return Certificates(deepcopy(OBJECTS))


def secret(certificates, name):
    """Return what a pod finds in a Secret: a certificate, its key, and whom to trust."""
    texts = Manifests(certificates.secrets).data().secrets[name]
    own = x509.load_pem_x509_certificate(texts["tls.crt"].encode())
    key = load_pem_private_key(texts["tls.key"].encode(), None)
    return own, key, x509.load_pem_x509_certificates(texts["ca.crt"].encode())


def is_signed_by(own, authority):
    try:
        own.verify_directly_issued_by(authority)
    except InvalidSignature:
        return False
    return True


def test_each_certificate_is_a_secret_with_what_it_asks_for(certificates):
    names = {one["metadata"]["name"] for one in certificates.secrets}
    assert names == {"decode-tls", "etcd-tls"}, "the authority's key is no pod's"
    own, key, (root,) = secret(certificates, "decode-tls")
    assert key.public_key() == own.public_key()
    assert is_signed_by(own, root)
    alternatives = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["decode.baton"]
    assert alternatives.get_values_for_type(x509.UniformResourceIdentifier) == [
        "spiffe://baton/decode"
    ]
    etcd = secret(certificates, "etcd-tls")[0]
    alternatives = etcd.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.DNSName) == ["etcd", "*.etcd"]
    assert alternatives.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]


def test_certificates_and_their_authority_last_as_long_as_they_ask_for(certificates):
    own, _, (root,) = secret(certificates, "decode-tls")
    for one, hours in ((own, 48), (root, 240)):
        left = one.not_valid_after_utc - datetime.now(UTC)
        assert abs(left - timedelta(hours=hours)) < timedelta(minutes=1)


def test_an_authority_is_replaced_step_by_step(certificates):
    before, _, (old,) = secret(certificates, "decode-tls")
    certificates.add_authority()
    own, _, trusted = secret(certificates, "decode-tls")
    assert own == before, "all trust the new authority before it signs anything"
    assert trusted[1:] == [old] and trusted[0] != old
    certificates.renew()
    own, key, trusted = secret(certificates, "decode-tls")
    assert trusted[1:] == [old], "others still show what the old one signed"
    assert is_signed_by(own, trusted[0]) and not is_signed_by(own, old)
    assert key.public_key() == own.public_key() != before.public_key()
    certificates.drop_old_authorities()
    kept, _, only = secret(certificates, "decode-tls")
    assert (kept, only) == (own, trusted[:1])
    assert is_signed_by(secret(certificates, "etcd-tls")[0], only[0])


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (2, {"issuerRef": AUTHORITY}, "signed by another one"),
        (DECODE, {"issuerRef": {"name": "self-signed"}}, "decode-tls has another authority"),
        (DECODE, {"issuerRef": {"name": "nobody"}}, "decode-tls: no Issuer"),
        (DECODE, {"issuerRef": {**AUTHORITY, "kind": "ClusterIssuer"}}, "decode-tls: no Issuer"),
        (DECODE, {"privateKey": {**KEY, "rotationPolicy": "Never"}}, "decode-tls: its key"),
        (ETCD, {"usages": ["server auth", "digital signature"]}, "etcd-tls: its key or its usages"),
    ],
)
def test_what_is_not_done_is_an_error(index, change, message):
    objects = deepcopy(OBJECTS)
    objects[index]["spec"].update(change)
    with pytest.raises(UnsupportedError, match=message):
        Certificates(objects)
