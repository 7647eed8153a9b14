"""Ranges, pins and generated code agree with each other."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import baton
from baton.__main__ import DISTRIBUTION, EXTRAS

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRA_REQUIREMENTS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
BASE = [Requirement(text) for text in PROJECT["project"]["dependencies"]]


def listed(name: str) -> dict[str, SpecifierSet]:
    """Return what a file in pip's format lists, by canonical name."""
    lines = (ROOT / name).read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and line[0] not in "#-"]
    return {canonicalize_name(each.name): each.specifier for each in requirements}


PINNED = listed("constraints.txt")
VLLM = listed("requirements-vllm.txt")


def pinned_version(specifier: SpecifierSet) -> Version:
    (only,) = specifier
    assert only.operator == "=="
    return Version(only.version)


def direct() -> list[Requirement]:
    """Return what the base and every extra ask for, other extras and vLLM aside."""
    extras = [extra for name, extra in EXTRA_REQUIREMENTS.items() if name != "vllm"]
    found = [*BASE, *(Requirement(text) for extra in extras for text in extra)]
    return [each for each in found if each.name != DISTRIBUTION]


@pytest.mark.parametrize("requirement", direct(), ids=lambda each: each.name)
def test_what_is_asked_for_is_pinned_within_its_range(requirement: Requirement) -> None:
    pinned = PINNED[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned_version(pinned))


def test_what_that_asks_for_is_pinned_to_what_is_tested() -> None:
    waiting = direct()
    seen = {"setuptools"}  # a venv's own
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker is not None and not requirement.marker.evaluate()):
            continue
        seen.add(name)
        assert importlib.metadata.version(name) in PINNED[name], name
        if name != "torch":  # whose builds bring what they need
            texts = importlib.metadata.requires(name) or ()
            waiting += [Requirement(text) for text in texts if "extra ==" not in text]


def test_vllm_is_pinned_with_what_it_needs_once() -> None:
    (asked,) = map(Requirement, EXTRA_REQUIREMENTS["vllm"])
    assert VLLM[asked.name] == asked.specifier
    unpinned = {name for name, specifier in VLLM.items() if not specifier}
    assert unpinned == VLLM.keys() & PINNED.keys()
    for specifier in (VLLM[name] for name in VLLM.keys() - unpinned):
        pinned_version(specifier)


def test_a_wheel_is_built_with_what_is_tested() -> None:
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier == PINNED[canonicalize_name(requirement.name)]


def test_the_oldest_protobuf_and_grpcio_are_those_of_the_generated_code() -> None:
    messages = (ROOT / "baton" / "v1" / "common_pb2.py").read_text()
    call = re.search(r"ValidateProtobufRuntimeVersion\(\s*\S+\s*(\d+),\s*(\d+),\s*(\d+)", messages)
    stubs = (ROOT / "baton" / "v1" / "inference_pb2_grpc.py").read_text()
    generator = re.search(r"GRPC_GENERATED_VERSION = '(.+)'", stubs)
    assert call is not None
    assert generator is not None
    made_with = {"protobuf": ".".join(call.groups()), "grpcio": generator.group(1)}
    for each in BASE:
        if each.name in made_with:
            lowest = [one.version for one in each.specifier if one.operator == ">="]
            assert lowest == [made_with[each.name]]


def test_the_code_names_the_distribution_and_its_extras() -> None:
    assert PROJECT["project"]["name"] == DISTRIBUTION
    assert PROJECT["project"]["version"] == baton.__version__
    texts = [*ROOT.glob("baton/**/*.py"), *ROOT.glob("services/**/*.py"), *ROOT.glob("*.md")]
    texts += ROOT.glob("docs/*.md")
    asked = {
        found.group(1, 2)
        for path in texts
        for found in re.finditer(r"pip install '([\w-]+)\[([\w-]+)\]", path.read_text())
    }
    assert {name for name, _ in asked} == {DISTRIBUTION}
    assert {extra for _, extra in asked} | set(EXTRAS.values()) <= set(EXTRA_REQUIREMENTS)
