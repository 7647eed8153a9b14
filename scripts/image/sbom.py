"""Write what an image consists of: `python -m scripts.image.sbom IMAGE PACKAGES WHEEL...`.

The bill of materials (SBOM) is JSON of CycloneDX 1.6: the wheels with their digests and licences,
and the Debian packages of PACKAGES, a copy of the base's /var/lib/dpkg/status. Libraries that a
wheel brings in binary form are part of the wheel, and have no entries of their own.
"""

import hashlib
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email import message_from_string
from email.message import Message
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

_CLASSIFIER = "License :: "
_UNSAID = {"", "UNKNOWN"}


def of_image(image: str, packages: str, wheels: Iterable[Path]) -> str:
    """Return the SBOM of an image; the same for the same contents.

    Args:
        image: name and tag.
        packages: text of /var/lib/dpkg/status.
        wheels: all that are installed in the image.
    """
    name, _, tag = image.rpartition(":")
    bom = Bom(components=[*map(_of_wheel, wheels), *_of_packages(packages)])
    bom.metadata.component = Component(
        name=name, version=tag, type=ComponentType.CONTAINER, bom_ref=image
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)
    purls = "\n".join(sorted(str(each.purl) for each in bom.components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{image}\n{purls}")
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def _of_wheel(wheel: Path) -> Component:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (one for one in archive.namelist() if _is_metadata(one))
        metadata = message_from_string(archive.read(path).decode())
    name = metadata["Name"].lower().replace("_", "-").replace(".", "-")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Component(
        name=name,
        version=metadata["Version"],
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}=={metadata['Version']}",
        purl=PackageURL("pypi", name=name, version=metadata["Version"]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[found] if (found := _license(metadata)) else [],
    )


def _license(metadata: Message) -> License | None:
    """Return the licence that a wheel states: an expression, a short name, or by classifier."""
    names = LicenseFactory()
    said = (metadata["License-Expression"] or metadata["License"] or "").strip()
    if said not in _UNSAID and "\n" not in said:
        return names.make_from_string(said)
    classes = metadata.get_all("Classifier", [])
    found = [one.rpartition(" :: ")[2] for one in classes if one.startswith(_CLASSIFIER)]
    return names.make_with_name(" AND ".join(found)) if found else None


def _is_metadata(path: str) -> bool:
    return path.endswith(".dist-info/METADATA") and path.count("/") == 1


def _of_packages(status: str) -> Iterator[Component]:
    for paragraph in filter(None, status.split("\n\n")):
        fields = message_from_string(paragraph)
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        qualifiers = {"arch": fields["Architecture"]}
        purl = PackageURL("deb", "debian", name, version, qualifiers)
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=str(purl),
            purl=purl,
        )


if __name__ == "__main__":
    image, packages, *wheels = sys.argv[1:]
    print(of_image(image, Path(packages).read_text(), map(Path, wheels)))
