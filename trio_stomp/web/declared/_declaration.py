"""Declarations of requests and their parameters, by which they are parsed and described."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

Schema = Mapping[str, object]
"""A JSON Schema."""
Fields = Mapping[str, Schema]
"""The fields of a JSON object."""

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NUMBERS: Schema = {"type": "array", "items": NUMBER}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}
"""Counts by name."""


@frozen
class Parameter:
    """A parameter of a query: it is parsed by this declaration, and documented by it.

    Args:
      name: Its name.
      help: Its meaning, for an error and the description of the interface.
      is_required: Whether it must be given.
      most_times: The limit of repetitions.
      value: The name of its value on the command line; "" = made of ``name``.
    """

    name: str
    help: str
    is_required: bool = False
    most_times: int = 1
    value: str = field(default="", kw_only=True)

    @property
    def meaning(self) -> str:
        """Its meaning, for the description of the interface."""
        return self.help

    def refuse(self, _text: str) -> str:
        """Return the rule that a value breaks, or ""."""
        return ""

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of a value."""
        return {"type": "string"}


@frozen
class Number(Parameter):
    """A whole number.

    Args:
      default: The value if it is not given.
    """

    default: int = 0
    least: int = 0
    most: int = 2**53

    def refuse(self, text: str) -> str:
        """Implement ``Parameter.refuse``."""
        # int() accepts signs, spaces, underscores, other scripts and thousands of digits.
        is_whole = text.isascii() and text.isdigit() and len(text) <= len(str(self.most))
        if is_whole and self.least <= int(text) <= self.most:
            return ""
        return f"must be a whole number from {self.least} to {self.most}"

    def schema(self) -> dict[str, object]:
        """Implement ``Parameter.schema``."""
        bounds = {"minimum": self.least, "maximum": self.most}
        return {"type": "integer", **bounds, "default": self.default}


@frozen
class Time(Number):
    """A time, in ms since 1970."""

    @property
    def meaning(self) -> str:
        """Implement ``Parameter.meaning``."""
        return f"{self.help}, in ms since 1970"


@frozen
class Word(Parameter):
    """One of some words.

    Args:
      choices: The words. The first is the default.
    """

    choices: Sequence[str] = ()

    def refuse(self, text: str) -> str:
        """Implement ``Parameter.refuse``."""
        if text in self.choices:
            return ""
        return f"must be one of {', '.join(self.choices)}{hint(text, self.choices)}"

    def schema(self) -> dict[str, object]:
        """Implement ``Parameter.schema``."""
        return {"type": "string", "enum": list(self.choices), "default": self.choices[0]}


@frozen
class Flag(Word):
    """Something that is done if the value is 1."""

    choices: Sequence[str] = ("0", "1")

    @property
    def meaning(self) -> str:
        """Implement ``Parameter.meaning``."""
        return f"1 = {self.help}"


@frozen(eq=False, kw_only=True)
class Declaration:
    """What a request takes, needs and answers.

    Args:
      name: The end of the address.
      summary: A sentence that says what the request does.
      answer: The fields of the answer.
      parameters: The parameters that it accepts.
      errors: The codes of the errors, in addition to those of all requests.
      right: The required right, for people; by default the text for ``rights`` of an endpoint.
      method: The HTTP method.
      as_send: Whether the request can have the errors of a SEND, too.
      has_progress: The operation can answer with lines about its progress.
      body: The descriptions of the body of the request, by content type.
      note: More about it, in lines.
    """

    name: str
    summary: str
    answer: Fields
    parameters: Sequence[Parameter] = ()
    errors: Sequence[str] = ()
    right: str = ""
    method: str = "GET"
    as_send: bool = False
    has_progress: bool = False
    body: Mapping[str, str] = MappingProxyType({})
    note: str = ""


@frozen(eq=False, kw_only=True)
class Verb(Declaration):
    """An operation that is a command of the command line, too.

    Args:
      done: Returns the lines for people, given the answer.
      question: The question to confirm first, with parameters as fields; "" = none.
    """

    method: str = "POST"
    done: Callable[[dict[str, Any]], str]
    question: str = ""


def hint(name: str, names: Sequence[str]) -> str:
    """Return the nearest of some names for an error, or all of them."""
    # Imported here, so that only a typing error costs the time.
    import difflib

    near = difflib.get_close_matches(name[:40], names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(names)}" if names else "; this page has none"
