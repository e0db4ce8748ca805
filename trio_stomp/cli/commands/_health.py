"""``trio-stomp health``: a health check, for people and for Docker's HEALTHCHECK."""

import argparse
from collections.abc import Iterator
from typing import Any

from attrs import evolve

from trio_stomp.base import is_loopback
from trio_stomp.cli._command import JSON, Argument, Command, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._http_get import NOBODY, Answer, Site, Unreachable, open_site
from trio_stomp.cli._tool import WELL, printable, report

UNWELL, UNREACHABLE = 1, 2
NOT_FOR_US = (401, 403, 404)
TLS_ONLY = "speaks TLS only"

EPILOG = """\
This requests /healthz, which gives reasons to clients with the right to monitor (without users:
to clients on the broker's machine), and otherwise /readyz. The exit code is 0 if the broker is
well or degraded, 1 if it is not, 2 if there is no answer, or for a bad option. A local broker that
speaks TLS only is contacted over TLS, without a check of its certificate.
"""


def _run(given: argparse.Namespace) -> int:
    """Run ``health``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
    """
    site = open_site(given)
    url = site.address.web_url
    try:
        page, answer = _ask(site, given.timeout)
        if _wants_tls(site, answer):
            site = _over_tls(site)
            url = site.address.web_url
            page, answer = _ask(site, given.timeout)
    except Unreachable as error:
        found = {"healthy": False, "reachable": False, "url": url, "reason": str(error)}
        return report(given, found, *str(error).splitlines(), code=UNREACHABLE)
    healthy = answer.status == 200
    details = answer.record()
    found = {
        "healthy": healthy,
        "reachable": True,
        "url": f"{url}{page}",
        "status": answer.status,
        "details": details,
    }
    summary = "healthy" if healthy else "not healthy"
    if details is None:
        summary += "" if healthy else f": {answer.text()}"
    else:
        summary += "".join(_lines(details))
    lines = f"{url}: {summary}".splitlines()
    return report(given, found, *lines, code=WELL if healthy else UNWELL)


def _ask(site: Site, timeout_s: float) -> tuple[str, Answer]:
    """Return the health page that this client may read, and its content."""
    page = "/healthz"
    answer = site.get(page, timeout_s)
    if answer.status in NOT_FOR_US:
        page = "/readyz"
        answer = site.get(page, timeout_s)
    return page, answer


def _wants_tls(site: Site, answer: Answer) -> bool:
    """Return whether a local broker was contacted without TLS but requires it."""
    is_refused = answer.status == 403 and TLS_ONLY in answer.text()
    is_open = site.tls is None and site.access == NOBODY
    return is_refused and is_open and is_loopback(site.address.host)


def _over_tls(site: Site) -> Site:
    """Return the same broker over TLS, without a check of its certificate.

    The certificate need not be valid for 127.0.0.1. No secret is sent, and without TLS another
    local process could answer in the broker's place as well.
    """
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return Site(evolve(site.address, is_tls=True), context)


def _lines(details: dict[str, Any]) -> Iterator[str]:
    """Yield lines for the answer of /healthz: the overall status, and the checks behind it."""
    if isinstance(status := details.get("status"), str):
        yield f" ({printable(status)})"
    checks = details.get("checks")
    for check in checks if isinstance(checks, list) else ():
        if isinstance(check, dict):
            words = (str(check.get(key, "?")) for key in ("status", "name", "detail"))
            status, name, detail = map(printable, words)
            yield f"\n  {status:<8}  {name}: {_figures(check)}{detail}"


def _figures(check: dict[str, Any]) -> str:
    """Return the measured figures and their limits, if any."""
    shown = [
        f"{each:,.4g}" if isinstance(each, float) else f"{each:,}"
        for each in (check.get("value"), check.get("limit"))
        if isinstance(each, int | float)
    ]
    if len(shown) < 2:
        return f"{shown[0]} " if shown and check.get("value") else ""
    return f"{shown[0]} of {shown[1]}: "


COMMAND = Command(
    _run,
    (
        Argument(
            "--timeout SECONDS", "seconds to wait for an answer (default: 5)", seconds, default=5.0
        ),
        JSON,
        *ACCESS,
    ),
    epilog=EPILOG,
)
