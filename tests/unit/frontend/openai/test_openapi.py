"""The OpenAPI document is of what is served, and of the types that read it."""

import json
import re
from typing import Any

import msgspec

from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.openapi import document
from services.frontend.openai.request.field import Body
from services.frontend.openai.request.fields import FIELDS
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.routes import route_table


def made() -> dict[str, Any]:
    routes = route_table(
        Handlers.__new__(Handlers),
        ResponsesHandlers.__new__(ResponsesHandlers),
        CompactHandler.__new__(CompactHandler),
        StoredResponses(None),
        ConversationHandlers.__new__(ConversationHandlers),
        StoredCompletions.__new__(StoredCompletions),
        FileHandlers(None),
        BatchHandlers.__new__(BatchHandlers),
        WebhookHandlers.__new__(WebhookHandlers),
        OrganizationRoutes.__new__(OrganizationRoutes),
        metrics=True,
    )
    encoded = msgspec.json.encode(document(routes))
    found: dict[str, Any] = json.loads(encoded)
    for route in routes:
        assert route.method.lower() in found["paths"][route.path]
    return found


def test_every_path_is_there_and_every_reference_leads_somewhere() -> None:
    found = made()
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
