"""The bill of materials of an image: what is in it, by name, version, digest and licence."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from scripts.image.sbom import of_image

STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 3.0.17-1~deb12u3
Description: Secure Sockets Layer toolkit
 Several lines.

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
"""


@pytest.fixture
def wheel(tmp_path: Path):
    def wheel(name: str, *headers: str) -> Path:
        made = tmp_path / f"{name}-1.2-py3-none-any.whl"
        lines = ("Metadata-Version: 2.4", f"Name: {name}", "Version: 1.2", *headers, "", "Text")
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr(f"{name}-1.2.dist-info/METADATA", "\n".join(lines))
            archive.writestr(f"{name}/vendored/x-1.0.dist-info/METADATA", "Name: x")
        return made

    return wheel


def components(text: str) -> dict[str, dict[str, object]]:
    return {one["purl"]: one for one in json.loads(text)["components"]}


def test_it_has_wheels_and_installed_packages(wheel) -> None:
    made = wheel("Some_Name", "License-Expression: Apache-2.0")
    text = of_image("localhost/baton:0.1.0-62147068", STATUS, [made])
    found = components(text)
    assert set(found) == {
        "pkg:pypi/some-name@1.2",
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u3?arch=amd64",
    }
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    assert found["pkg:pypi/some-name@1.2"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    image = document["metadata"]["component"]
    assert (image["name"], image["version"]) == ("localhost/baton", "0.1.0-62147068")


@pytest.mark.parametrize(
    ("headers", "licences"),
    [
        (["License-Expression: MIT OR Apache-2.0"], [{"expression": "MIT OR Apache-2.0"}]),
        (["License: MIT"], [{"license": {"id": "MIT"}}]),
        (["License: Our own words"], [{"license": {"name": "Our own words"}}]),
        (
            ["License: UNKNOWN", "Classifier: License :: OSI Approved :: BSD License"],
            [{"license": {"name": "BSD License"}}],
        ),
        (
            ["License: Permission is hereby\n        granted", "Classifier: License :: Other"],
            [{"license": {"name": "Other"}}],
        ),
        (["License: UNKNOWN"], None),
    ],
)
def test_licences_are_what_a_wheel_states(wheel, headers, licences) -> None:
    (found,) = components(of_image("baton:1", "", [wheel("some", *headers)])).values()
    stated = found.get("licenses")
    assert stated == licences or _bare(stated) == licences


def test_the_same_contents_give_the_same_text(wheel) -> None:
    made = wheel("some")
    assert of_image("baton:1", STATUS, [made]) == of_image("baton:1", STATUS, [made])
    other = json.loads(of_image("baton:1", "", [made]))["serialNumber"]
    assert json.loads(of_image("baton:1", STATUS, [made]))["serialNumber"] != other


def _bare(stated):
    """Return licences without who says them."""
    return [
        {
            key: {k: v for k, v in value.items() if k != "acknowledgement"}
            if isinstance(value, dict)
            else value
            for key, value in one.items()
            if key != "acknowledgement"
        }
        for one in stated or []
    ]
