"""The OpenAPI document is of what is served, and of the types that read it."""

import json
import re
from typing import Any

import msgspec

from services.frontend.access.authenticator import NoAuthentication
from services.frontend.admin.routes import OrganizationRoutes, templates
from services.frontend.openai.openapi import document
from services.frontend.openai.request.fields import FIELDS, Body
from services.frontend.openai.routes import Handlers, Routes


def made() -> dict[str, Any]:
    routes = Routes(
        Handlers.__new__(Handlers),
        NoAuthentication(),
        OrganizationRoutes.__new__(OrganizationRoutes),
        metrics=True,
    )
    encoded = msgspec.json.encode(document(routes.operations()))
    found: dict[str, Any] = json.loads(encoded)
    assert set(routes.by_path) <= set(found["paths"])
    return found


def test_every_path_is_there_and_every_reference_leads_somewhere() -> None:
    found = made()
    for path, method, *_ in templates():
        assert method.lower() in found["paths"][path]
    for ways in found["paths"].values():
        assert all(way["summary"] for way in ways.values())
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)):
        assert name in found["components"]["schemas"]
    assert found["paths"]["/health"]["get"]["security"] == []


def test_bodies_have_the_fields_and_limits_that_are_checked() -> None:
    found = made()
    for path, body in (("chat/completions", Body.CHAT), ("completions", Body.COMPLETION)):
        asked = found["paths"][f"/v1/{path}"]["post"]["requestBody"]
        ref = asked["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        schema = found["components"]["schemas"][ref]
        assert set(schema["properties"]) == {one.name for one in FIELDS if one.belongs_to(body)}
        assert schema["additionalProperties"] is False
        assert schema["properties"]["temperature"]["maximum"] == 2
        assert schema["properties"]["repetition_penalty"]["exclusiveMinimum"] == 0
        assert schema["properties"]["cache_salt"]["description"].startswith("not supported: ")
