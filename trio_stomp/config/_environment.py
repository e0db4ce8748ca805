"""Options from environment variables: ``TRIO_STOMP__LISTEN__PORT=3000``."""

from collections.abc import Mapping

from trio_stomp.base import OptionError
from trio_stomp.config._load import OptionSpec, from_text, hint, options
from trio_stomp.config._sources import ENVIRONMENT, Given, Source

PREFIX = "TRIO_STOMP__"
"""Two underscores, because Kubernetes sets TRIO_STOMP_PORT for a service of that name."""

CONFIG_VARIABLE = "TRIO_STOMP_CONFIG"
"""The variable with the settings file, used if the command line names none."""


def variable_of(spec: OptionSpec) -> str:
    """Return the environment variable of an option."""
    return f"{PREFIX}{spec.group}__{spec.name}".upper()


def read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the options set by variables, by name. The case of variables does not matter.

    Raises:
      OptionError: a variable is unknown or its value invalid; the text names the variable, and
        the nearest known one or the broken rule.
    """
    specs = {variable_of(spec): spec for spec in options()}
    found: dict[str, Given] = {}
    for variable, text in environ.items():
        if not variable.upper().startswith(PREFIX):
            continue
        spec = specs.get(variable.upper())
        if spec is None:
            raise OptionError(f"unknown variable {variable}{_near(variable.upper(), specs)}")
        if spec.name in found:
            raise OptionError(
                f"{found[spec.name].source} and {variable} are the same variable; unset one"
            )
        try:
            value = from_text(spec, text)
        except OptionError as error:
            raise OptionError(f"{variable}: {error}") from None
        found[spec.name] = Given(value, Source(ENVIRONMENT, variable))
    return found


def _near(variable: str, specs: Mapping[str, OptionSpec]) -> str:
    """Return the variable of the option with that name in any group, or a hint."""
    name = variable.rpartition("__")[2]
    same = [each for each, spec in specs.items() if spec.name.upper() == name]
    if same:
        return f"; did you mean {same[0]}?"
    # Without the common prefix, which would make all of them similar.
    near = hint(variable.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in specs])
    return near.replace("did you mean ", f"did you mean {PREFIX}")
