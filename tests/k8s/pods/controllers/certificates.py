"""What cert-manager makes of Certificates: Secrets with what they ask for, and new ones."""

from collections.abc import Iterable, Iterator
from typing import Any

from baton.cli.admin.certs.authority import Authority, IssuedCertificate
from tests.k8s.manifests.quantity import seconds
from tests.k8s.manifests.render import Object
from tests.k8s.pods.objects.supported import UnsupportedError

KINDS = ("Certificate", "Issuer")
DAY_SECONDS = 86400
KEY = {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"}
USAGES = ["client auth", "digital signature", "server auth"]


class Certificates:
    """The Certificates of one authority, and what they were issued.

    An authority is replaced in steps, as trust-manager's bundles and `baton certs` allow: first all
    trust a new one too, then certificates are its own, then the old one is trusted no longer.

    Args:
        objects: rendered; those of other kinds are passed over.

    Raises:
        UnsupportedError: a Certificate asks for what is not done here.
    """

    def __init__(self, objects: Iterable[Object]) -> None:
        mine = [one for one in objects if one["kind"] in KINDS]
        specs = {one["metadata"]["name"]: one for one in mine if one["kind"] == "Certificate"}
        self._issuers = {
            one["metadata"]["name"]: one["spec"] for one in mine if one["kind"] == "Issuer"
        }
        (self._root,) = (one for one in specs.values() if one["spec"].get("isCA"))
        self._leaves = [one for one in specs.values() if one is not self._root]
        if "selfSigned" not in self._issuer(self._root):
            raise UnsupportedError("the authority is signed by another one")
        self._authorities: list[Authority] = []
        """The newest first."""
        self._issued: dict[str, IssuedCertificate] = {}
        self.add_authority()
        self.renew()

    @property
    def secrets(self) -> list[Object]:
        """The Secrets as they are now."""
        return list(self._secrets())

    @property
    def authority(self) -> Authority:
        """The one that signs."""
        return self._authorities[0]

    def add_authority(self) -> None:
        """Have all trust a new authority too, which signs from now on."""
        spec = self._root["spec"]
        self._authorities.insert(0, Authority.new(spec["commonName"], _days(spec)))

    def renew(self) -> None:
        """Issue all certificates anew."""
        for one in self._leaves:
            spec = one["spec"]
            signer = self._issuer(one).get("ca", {}).get("secretName")
            if signer != self._root["spec"]["secretName"]:
                raise UnsupportedError(f"Certificate {spec['secretName']} has another authority")
            if spec["privateKey"] != KEY or sorted(spec["usages"]) != USAGES:
                raise UnsupportedError(f"Certificate {spec['secretName']}: its key or its usages")
            names = [*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())]
            issued = self.authority.issue(names, _days(spec), uris=spec.get("uris", ()))
            self._issued[spec["secretName"]] = issued

    def drop_old_authorities(self) -> None:
        """Have all trust the newest authority alone."""
        del self._authorities[1:]

    def _issuer(self, one: Object) -> dict[str, Any]:
        reference = one["spec"]["issuerRef"]
        if reference.get("kind", "Issuer") != "Issuer" or reference["name"] not in self._issuers:
            raise UnsupportedError(f"Certificate {one['metadata']['name']}: no Issuer {reference}")
        found: dict[str, Any] = self._issuers[reference["name"]]
        return found

    def _secrets(self) -> Iterator[Object]:
        trusted = b"".join(one.cert for one in self._authorities).decode()
        for one in self._leaves:
            name = one["spec"]["secretName"]
            issued = self._issued[name]
            texts = {"tls.crt": issued.cert.decode(), "tls.key": issued.key.decode()}
            yield {
                "kind": "Secret",
                "metadata": {**one["metadata"], "name": name},
                "stringData": {**texts, "ca.crt": trusted},
            }


def _days(spec: dict[str, Any]) -> float:
    return seconds(spec["duration"]) / DAY_SECONDS
