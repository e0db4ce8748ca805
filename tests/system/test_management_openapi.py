"""The published description of the management interface is that of the code."""

import json
from typing import Any

from openapi_spec_validator import validate

from tests.support.management import API, VALUES, Interface, description, operations
from tests.support.served import served


async def test_the_description_is_openapi() -> None:
    async with served() as broker:
        document = await Interface(broker).get("openapi.json")
    assert document == description()
    validate(document)
    names = [each["operationId"] for _, _, each in operations(document)]
    assert len(set(names)) == len(names)


def wrong(schema: Any) -> str | None:
    """Return a value that a schema does not allow, or None."""
    if schema["type"] == "array":
        return wrong(schema["items"])
    return None if schema == {"type": "string"} else "%20"


async def test_each_parameter_is_accepted_and_checked_as_described() -> None:
    async with served() as broker:
        interface = Interface(broker)

        async def refusal(method: str, address: str, given: dict[str, str]) -> tuple[str, str]:
            query = "&".join(f"{name}={text}" for name, text in given.items())
            reply = await interface.ask(method, f"{address}?{query}")
            if reply.headers["content-type"] != "application/json":
                return "", ""
            answer = json.loads(reply.body)
            return answer.get("code", ""), answer.get("error", "")

        for method, address, operation in operations(description()):
            required = {
                each["name"]: VALUES[each["name"]]
                for each in operation["parameters"]
                if each["required"]
            }
            for each in operation["parameters"]:
                name, schema = each["name"], each["schema"]
                if each["required"]:
                    code, text = await refusal(method, address, {**required, name: ""})
                    assert (code, text.split()[0]) == ("bad-request", name)
                elif (bad := wrong(schema)) is not None:
                    code, text = await refusal(method, address, {**required, name: bad})
                    assert (code, text.split()[0]) == ("bad-request", name), (address, text)
                else:
                    _, text = await refusal(method, address, {**required, name: "a"})
                    assert "unknown parameter" not in text
                for good in schema.get("enum", ()):
                    _, text = await refusal(method, address, {**required, name: good})
                    assert f"{name} is" not in text or "sorted by" in text
            code, text = await refusal(method, address, {**required, "x-y": "1"})
            assert (code, text.partition("'")[0]) == ("bad-request", "unknown parameter ")


async def test_each_address_answers_its_methods_only() -> None:
    async with served() as broker:
        interface = Interface(broker)
        for path, methods in description()["paths"].items():
            for method in {"GET", "POST"} - {each.upper() for each in methods}:
                reply = await interface.ask(method, path.removeprefix(API))
                assert (reply.status, json.loads(reply.body)["code"]) == (405, "method-not-allowed")
        reply = await interface.ask("GET", "nothing")
        assert (reply.status, json.loads(reply.body)["code"]) == (404, "no-such-address")
