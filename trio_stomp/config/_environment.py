"""Options from variables of the environment: ``TRIO_STOMP__LISTEN__PORT=3000``."""

from collections.abc import Mapping

from trio_stomp.base import OptionError
from trio_stomp.config._load import OptionSpec, from_text, hint, options
from trio_stomp.config._sources import ENVIRONMENT, Given, Source

PREFIX = "TRIO_STOMP__"
"""Variables that begin otherwise are not ours: Kubernetes makes TRIO_STOMP_PORT of a service."""

CONFIG_VARIABLE = "TRIO_STOMP_CONFIG"
"""Names the settings file, where the command line names none."""


def variable_of(spec: OptionSpec) -> str:
    """Return the variable that sets an option."""
    return f"{PREFIX}{spec.group}__{spec.name}".upper()


def read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the options set by variables, by name, ignoring case.

    Raises:
      OptionError: the operator's fault: it names the variable, and the nearest one that there is;
        or the rule that its value breaks.
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
    """Return the variable of an option with that name in any group, or a hint."""
    name = variable.rpartition("__")[2]
    same = [each for each, spec in specs.items() if spec.name.upper() == name]
    if same:
        return f"; did you mean {same[0]}?"
    # Without what all of them begin with, which would make each of them look near.
    near = hint(variable.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in specs])
    return near.replace("did you mean ", f"did you mean {PREFIX}")
