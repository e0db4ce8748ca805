"""Commands other than ``serve``: help, the broker's address, logins, pages."""

import argparse
import base64
import getpass
import io
import json
import ssl
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import pytest
from _crash.ports import free_port

from tests.support.commands import ALIASES, names, parser_of
from tests.support.files import save
from tests.support.stores import fill
from tests.support.tls import authority
from tests.support.tool_fakes import (
    FakeSite,
    OutputOf,
    Terminal,
    answering,
    check_refused,
    fake_site,
    run,
    run_unread,
)
from tests.support.tool_fakes import output_of as output_of
from trio_stomp import __version__
from trio_stomp.base import OptionError
from trio_stomp.cli import _connect_options, _hints, _http_get, _session, main
from trio_stomp.cli._command import (
    Argument,
    Command,
    count,
    port_number,
    seconds,
    size_in_bytes,
    time_ms,
)
from trio_stomp.cli._tool import (
    CannotDo,
    ask_yes,
    near,
    printable,
    put,
    say,
    show_table,
)
from trio_stomp.client import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ConnectFailed,
    LinkLost,
    NotAuthorized,
)
from trio_stomp.store import JournalStore
from trio_stomp.testing import threaded_broker

SECRET = "geheim"


# The first word.


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_the_help_names_every_command_in_one_line(word: str) -> None:
    ran = run(word)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    for name in names():
        assert len([line for line in lines if line.startswith(f"  {name} ")]) == 1
    assert max(map(len, lines)) <= 100


def test_the_document_tells_of_every_command() -> None:
    text = (Path(__file__).parents[3] / "docs" / "use" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("name", names())
def test_every_command_has_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: trio-stomp")
    with pytest.raises(SystemExit):
        main(["help", name])
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("word", ["version", "-V", "--version"])
def test_the_version_has_many_names(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([word])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"trio-stomp {__version__}\n")


@pytest.mark.parametrize(
    ("word", "name"), [("pub", "send"), ("sub", "subscribe"), ("req", "request")]
)
def test_aliases_of_commands(word: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([word, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: trio-stomp {name} ")
    ours = {*_hints.COMMANDS.values(), *ALIASES.values()}
    assert {each.partition(" ")[0] for each in ours} <= set(names())


def test_the_same_letters_in_another_order_are_the_nearest() -> None:
    assert near("--form", ["--for", "--from", "--file"]) == "; did you mean --from?"


@pytest.mark.parametrize(
    ("line", "code", "heavy"),
    [
        ("--version", 0, {"trio"}),
        ("explain", 2, {"trio"}),
        (
            "health --url http://127.0.0.1:1 --timeout 0.1",
            2,
            {"trio", "trio_stomp.config", "trio_stomp.broker", "rich"},
        ),
    ],
)
def test_commands_without_a_broker_import_none(line: str, code: int, heavy: set[str]) -> None:
    program = (
        "import sys; from trio_stomp.cli import main\n"
        f"try: code = main({line.split()})\nexcept SystemExit as ended: code = ended.code\n"
        f"sys.exit(str((code, {heavy} & {{*sys.modules}})))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stderr.endswith(f"({code}, set())\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("helth", "unknown command 'helth'; did you mean health? (trio-stomp --help lists all)"),
        ("qqq", "unknown command 'qqq' (trio-stomp --help lists all)"),
        ("port", "unknown command 'port'"),
        ("seerve", "; did you mean serve?"),
        ("publish", "; did you mean send?"),
        ("stats", "; did you mean top?"),
        ("list_queues", "; did you mean ls queues?"),
        ("list queues", "; did you mean ls queues?"),
        ("context add", "; set TRIO_STOMP_URL, TRIO_STOMP_LOGIN and TRIO_STOMP_PASSCODE"),
        ("--json --url=x", "a command is missing after --json"),
        ("send -t a -m b", "-t: the destination is an argument without an option; -m: the body is"),
        ("send -u a b", "-u: the user is --login, the passcode in TRIO_STOMP_PASSCODE"),
        ("subscribe -C1 d", "unrecognized arguments: -C1: that is --count here"),
        ("health -C 1", "health: unrecognized arguments: -C (--help lists all)"),
        ("serve --port=x", "port is 'x', but must be a whole number"),
        ("--port=x", "port is 'x', but must be a whole number"),
        ("port=x", "port is 'x', but must be a whole number"),
        ("serve port=x", "port is 'x', but must be a whole number"),
        ("health --jsn", "health: unrecognized arguments: --jsn; did you mean --json? (--help"),
        ("health now", "health: 'now' is an unexpected argument (see --help"),
        ("health --timeout x", "argument --timeout: 'x' is not a number of seconds above 0"),
        ("store verfy x", "store: argument COMMAND: invalid choice: 'verfy'"),
        ("store verfy x", "; did you mean verify?"),
        ("completion csh", "invalid choice: 'csh'"),
        ("explain", "explain: give a MESSAGE-ID, or --destination D"),
        ("explain a-1 --user u", "explain: a MESSAGE-ID takes no other options"),
        ("explain --user u", "explain: give a MESSAGE-ID, or --destination D"),
        ("explain --destination d --user u --session s", "--session and --user exclude each"),
        ("health --url gopher://x", "--url has the scheme 'gopher' (known: stomp, "),
        ("health --url stmp://x", "did you mean stomp?"),
        ("health --url stomp://u:geheim@x", "--url holds a login: leave it out of the URL"),
        ("health --url stomp://", "--url is 'stomp://'; it must be like stomp://127.0.0.1:61613"),
        ("health --url stomp://x:99999", "--url is no URL: port out of range"),
        ("health --url stomp://x/path", "but only ws and wss have a path"),
        ("health --ca-file x", "--ca-file and --insecure-tls are for stomps, wss and https"),
        ("health --url https://x --ca-file nix", "--ca-file nix cannot be used: No such file"),
        (
            "health --url https://x --ca-file README.md",
            "cannot be used: it contains no certificate",
        ),
        ("health --url https://x --ca-file y --insecure-tls", "exclude each other"),
        ("explain a-1 --login u", "the passcode of 'u' is needed, and there is no terminal"),
        ("explain a-1 --login u --token-file f", "--login and --token-file exclude each other"),
        ("explain a-1 --passcode-file f", "--passcode-file needs the user name: give --login"),
        ("explain a-1 --token-file nix", "--token-file nix cannot be read: No such file"),
        ("explain a-1 --login u --passcode-file nix", "--passcode-file nix cannot be read"),
        ("send", "send: DESTINATION is missing"),
        ("send --lines", "send: DESTINATION is missing"),
        ("send d b --file f", "BODY, --file and --lines exclude each other"),
        ("send d b --lines", "BODY, --file and --lines exclude each other"),
        ("send d --lines --json", "--lines and --json exclude each other"),
        ("send d --file nix", "--file nix cannot be read: No such file or directory"),
        ("send d b -H x", "-H 'x' is not a header; write name:value"),
        ("send d b --count 2 --lines", "BODY, --file and --lines exclude each other"),
        ("send d --count 2 --lines", "--count repeats one message, but there is one for each line"),
        ("send d b -v", "-v and --format are for answers: give --request as well"),
        ("request d b -v --json", "--json, --format and -v exclude each other"),
        ("subscribe d --browse --reconnect", "--browse and --reconnect exclude each other"),
        ("reply d x --command y", "FORMAT and --command exclude each other"),
        ("reply d --command nothing-like-that", "there is no program 'nothing-like-that'"),
        ("reply d --command '", "--command: no closing quotation"),
        ("subscribe", "the following arguments are required: DESTINATION"),
        ("subscribe d --from never", "--from is 'never', but must be first, last, next"),
        ("subscribe d --ack maybe", "invalid choice: 'maybe'"),
        ("subscribe d --count 0", "'0' is not a whole number from 1"),
        ("subscribe" + " d" * 101, "more than 100 destinations; use a wildcard"),
        ("bench --size 7", "--size 8 to"),
        ("bench --subs 10001", "--subs may be 10000 at most"),
        ("dlq", "the following arguments are required: COMMAND"),
        ("dlq lst", "did you mean ls?"),
        ("dlq drop q", "standard input is not a terminal; confirm with --yes"),
        ("subs rm x", "confirm with --yes"),
        ("top --sort size", "invalid choice: 'size'"),
        ("dlq show ", "dlq: QUEUE is empty"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(
    line: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delenv("TRIO_STOMP_PASSCODE", raising=False)
    assert main(line.split(" ")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("trio-stomp")
    assert expected in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "explain a-1 --passcode geheim",
        "explain a-1 --passcode=geheim",
        "explain a-1 --pass geheim",
        "explain a-1 --nonsense=geheim",
        "explain a-1 --url http://u:geheim@x",
        "explain a-1 --login u --url ://u:geheim@x",
    ],
)
def test_possible_secret_is_not_repeated(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(line.split()) == 2
    assert SECRET not in capsys.readouterr().err


def test_ctrl_c_ends_a_tool_without_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(HTTPConnection, "connect", interrupted)
    assert main(["health"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_ends_the_command_without_a_message() -> None:
    ran = run_unread("completion", "bash")
    if b"shtab" in ran.stderr:
        pytest.skip("pip install 'trio-stomp[cli]'")
    assert (ran.returncode, ran.stderr) == (141, b"")


# Functions that all tools use.


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((seconds, text) for text in ("0", "-1", "nan", "inf", "1e99", "x", "")),
        *((count, text) for text in ("0", "-1", "1_0", "\N{ARABIC-INDIC DIGIT ONE}", "1.5")),
        (count, "9" * 30),
        (port_number, "65536"),
    ],
)
def test_numbers_that_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse(text)


def test_numbers_of_the_command_line() -> None:
    printed = (seconds("0.5"), count("1"), size_in_bytes("0"), port_number("65535"))
    assert printed == (0.5, 1, 0, 65535)
    with pytest.raises(argparse.ArgumentTypeError, match="from 0 to 65535"):
        port_number("65536")


def test_a_table_has_its_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([], "name", "count")
    assert capsys.readouterr().out == "name  count\n"
    show_table([("a\x1b[31m", 1, 0.25), ("b", 12345, 10.0)], "name", "count", "rate")
    assert capsys.readouterr().out.splitlines() == [
        "name        count  rate",
        "a\\x1b[31m       1   0.2",
        "b          12,345  10.0",
    ]


def test_a_clients_text_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b]0;x\x07\n\u202eb") == "a\\x1b]0;x\\x07\\n\\u202eb"


@pytest.mark.parametrize(
    ("typed", "is_yes"), [("y\n", True), ("YES\n", True), ("\n", False), ("", False), ("n", False)]
)
def test_only_yes_is_yes(
    typed: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert ask_yes("Drop it?") is is_yes
    assert capsys.readouterr().err == "Drop it? [y/N] "


def test_no_prompt_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(OptionError, match="confirm with --yes"):
        ask_yes("Drop it?")


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers_of(command)


TOOLS = [
    pytest.param(parser, id=parser.prog.partition(" ")[2])
    for name in names()
    if name not in ("serve", "config")
    for parser in parsers_of(parser_of(name))
    if not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
]


@pytest.mark.parametrize("parser", TOOLS)
def test_an_option_may_stand_anywhere_between_the_words(parser: argparse.ArgumentParser) -> None:
    """argparse takes a word that may be left out for left out at the first option."""
    words: list[str] = []
    for action in parser._actions:
        if not action.option_strings:
            least = {"+": 2, "*": 2}.get(str(action.nargs), 1)
            words += [str(next(iter(action.choices or ["word"])))] * least
    flags = {option: action for action in parser._actions for option in action.option_strings}
    given = ["--json"] if "--json" in flags else []
    given += ["-H", "a:b", "--header=c:d", "-He:f"] if "-H" in flags else []
    first = vars(parser.parse_args([*given, *words]))
    for at in range(1, len(words) + 1):
        assert vars(parser.parse_args([*words[:at], *given, *words[at:]])) == first


@pytest.mark.parametrize(
    ("line", "destination", "body"),
    [
        ("/queue/o -H a:b body", "/queue/o", "body"),
        ("/queue/o --json -- -b", "/queue/o", "-b"),
        ("/queue/o -5 --json", "/queue/o", "-5"),
        ("/queue/o --json -", "/queue/o", "-"),
        ("-- /queue/o --json", "/queue/o", "--json"),
    ],
)
def test_body_argument_beside_options(line: str, destination: str, body: str) -> None:
    given = parser_of("send").parse_args(line.split())
    assert (given.destination, given.body) == (destination, body)


def test_a_flag_of_a_command_of_a_command_is_known_too() -> None:
    listing = Command(arguments=(Argument("--deep"),), text="list")
    parser = Command(commands={"ls": listing}).make_parser("x")
    with pytest.raises(OptionError, match="--dep; did you mean --deep"):
        parser.parse_args(["ls", "--dep"])


# The address of the broker.


@pytest.mark.parametrize(
    ("url", "stomp_url", "web_url"),
    [
        ("stomp://h", "stomp://h:61613", "http://h:61613"),
        ("h:1", "stomp://h:1", "http://h:1"),
        ("tcp://[::1]:1/", "stomp://[::1]:1", "http://[::1]:1"),
        ("stomp+ssl://h", "stomps://h:61614", "https://h:61614"),
        ("ssl://h", "stomps://h:61614", "https://h:61614"),
        ("http://h", "stomp://h:80", "http://h:80"),
        ("https://h", "stomps://h:443", "https://h:443"),
        ("ws://h:1", "ws://h:1/", "http://h:1"),
        ("wss://h/ws?a=b", "wss://h:443/ws?a=b", "https://h:443"),
    ],
)
def test_urls(url: str, stomp_url: str, web_url: str) -> None:
    address = _connect_options.parse_url(url)
    assert (address.stomp_url, address.web_url) == (stomp_url, web_url)


def namespace(**more: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"login": "", "token_file": "", "passcode_file": "", "url": None, **more}
    )


def test_the_url_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_STOMP_URL", "stomp://there:5")
    assert _connect_options.read_address(namespace()) == _connect_options.Address("there", 5, False)
    assert _connect_options.read_address(namespace(url="stomp://h:6")).port == 6
    monkeypatch.setenv("TRIO_STOMP_URL", "x://there")
    with pytest.raises(OptionError, match=r"^TRIO_STOMP_URL has the scheme 'x'"):
        _connect_options.read_address(namespace())
    monkeypatch.setenv("TRIO_STOMP_URL", "")
    assert _connect_options.read_address(namespace()).port == 61613


def test_own_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"geheim\r\nmore\n")
    monkeypatch.setenv("TRIO_STOMP_PASSCODE", "other")
    assert _connect_options.read_access(namespace()) == _connect_options.Access()
    assert _connect_options.read_access(namespace(login="u")) == _connect_options.Access(
        "u", "other"
    )
    assert _connect_options.read_access(
        namespace(login="u", passcode_file=str(file))
    ) == _connect_options.Access("u", SECRET)
    assert _connect_options.read_access(namespace(token_file=str(file))) == _connect_options.Access(
        token=SECRET
    )
    assert SECRET not in repr(_connect_options.Access("u", SECRET, SECRET))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "its first line is empty"),
        (b"\nx", "its first line is empty"),
        (b"x" * 70_000, "its first line has over 65536 bytes"),
        (b"\xff\xfe", "its first line is not UTF-8"),
        (b"a b", "its first line is not a token"),
        ("\u00e4".encode(), "its first line is not a token"),
    ],
)
def test_a_file_that_holds_no_token(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=expected):
        _connect_options.read_access(namespace(token_file=str(file)))


def test_the_passcode_is_asked_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIO_STOMP_PASSCODE", raising=False)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: f"{SECRET} of {prompt}")
    assert _connect_options.read_access(namespace(login="u")) == _connect_options.Access(
        "u", f"{SECRET} of Passcode of u: "
    )


@pytest.mark.parametrize("kind", [EOFError, UnicodeDecodeError, getpass.GetPassWarning])
def test_a_passcode_that_cannot_be_had(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(prompt: str) -> str:
        if kind is getpass.GetPassWarning:
            warnings.warn("it would be shown", kind, stacklevel=1)
        if kind is UnicodeDecodeError:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")
        raise kind

    monkeypatch.delenv("TRIO_STOMP_PASSCODE", raising=False)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", ask)
    with pytest.raises(OptionError):
        _connect_options.read_access(namespace(login="u"))


# The broker's pages.


@pytest.fixture
def site() -> Iterator[FakeSite]:
    pages = {
        "object": (200, b'{"a": 1}'),
        "list": (200, b"[1]"),
        "text": (200, b"nothing"),
        "deep": (200, b"[" * 100_000),
        "private": (401, b'{"error": "log in", "code": "authentication-failed"}'),
        "wrong": (400, b'{"error": "ask ?q=MESSAGE-ID"}'),
        "forbidden": (403, b"this page is for\x1b[31m others\nmore"),
        "things": (200, b'{"things": [{"a": 1}, {"a": 2}]}'),
    }
    with fake_site({f"/api/v1/{name}": page for name, page in pages.items()}) as served:
        yield served


def site_of(fake: FakeSite, access: _connect_options.Access | None = None) -> _http_get.Site:
    access = access or _connect_options.Access()
    return _http_get.Site(_connect_options.parse_url(fake.url), None, access)


def test_parameters_of_a_request(site: FakeSite) -> None:
    parameters = {"q": "a b&c", "id": ["1", "2"], "none": None, "empty": "", "bytes": 0}
    flags = {"yes": True, "no": False}
    assert site_of(site).operate("GET", "object", {**parameters, **flags}) == {"a": 1}
    assert site.asked == [("/api/v1/object?q=a+b%26c&id=1&id=2&bytes=0&yes=1", None)]


def test_a_long_list_is_read_page_by_page(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http_get, "LISTED", 2)
    assert len(site_of(site).records("things", {"name": "x"}, 4)) == 4
    assert [path for path, _ in site.asked] == [
        f"/api/v1/things?name=x&offset={offset}&limit=2" for offset in (0, 2)
    ]
    # The broker has fewer than were asked for.
    assert len(site_of(site).records("things", {}, 3)) == 4
    monkeypatch.setattr(_http_get, "LISTED", 3)
    assert len(site_of(site).records("things", {})) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("list", "[1]"),
        ("text", "nothing"),
        ("deep", "[[["),
        ("private", "log in; check --login and the passcode, or --token-file"),
        ("forbidden", "this page is for\\x1b[31m others"),
        ("wrong", "ask ?q=MESSAGE-ID"),
        ("none", "the broker has no management interface: it is older"),
    ],
)
def test_an_answer_that_does_not_do(site: FakeSite, name: str, expected: str) -> None:
    with pytest.raises(CannotDo) as caught:
        site_of(site).operate("GET", name)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_requester_gets_an_answer(site: FakeSite) -> None:
    site_of(site, _connect_options.Access("u", "p\u00e4")).get("/api/v1/object")
    site_of(site, _connect_options.Access(token="t.o.k")).get("/api/v1/object")
    pair = base64.b64encode("u:p\u00e4".encode()).decode()
    assert [who for _, who in site.asked] == [f"Basic {pair}", "Bearer t.o.k"]


def test_a_page_beyond_all_bounds(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http_get, "MAX_PAGE_BYTES", 7)
    with pytest.raises(_http_get.Unreachable, match="answers over 7 bytes"):
        site_of(site).get("/api/v1/object")


def test_answer_without_text_is_reported_by_its_number() -> None:
    assert _http_get.Answer(503, b"").text() == "status 503"


@pytest.mark.parametrize(
    ("url", "expected"),
    [("http://x..y:1", "no such host"), ("http://nowhere.invalid:1", "no such host")],
)
def test_a_host_that_is_not_there(url: str, expected: str) -> None:
    with pytest.raises(_http_get.Unreachable, match=expected):
        _http_get.Site(_connect_options.parse_url(url), None).get("/")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"ERROR\nmessage:what?\n\n\0", r"answers, but not like a broker \(BadStatusLine\)"),
        (b"", r"answers, but not like a broker \(RemoteDisconnected\)"),
        (None, "no answer in time; is the broker running there"),
    ],
)
def test_something_else_answers(said: bytes | None, expected: str) -> None:
    with answering(said) as port, pytest.raises(_http_get.Unreachable, match=expected):
        _http_get.Site(_connect_options.Address("127.0.0.1", port, False), None).get(
            "/", 0.1 if said is None else 10.0
        )


def test_a_host_that_does_not_answer_is_given_up_sooner_than_a_broker_that_works(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[object] = []
    connect = HTTPConnection.connect

    def connecting(connection: HTTPConnection) -> None:
        limits.append(connection.timeout)
        connect(connection)
        limits.append(connection.sock.gettimeout())

    monkeypatch.setattr(HTTPConnection, "connect", connecting)
    site_of(site).operate("GET", "object")
    site_of(site).get("/api/v1/object", 0.5)
    assert limits == [10.0, 10.0, 0.5, 0.5]


# TLS


TOOLS_AT_A_BROKER = [
    "send /queue/a body", "subscribe /queue/a --for 1", "bench --seconds 1", "top --once", "dlq ls",
    "dlq show orders", "dlq retry orders", "subs ls", "schedules ls", "explain 1", "reload",
    "health",
]  # fmt: skip


@pytest.mark.parametrize("line", TOOLS_AT_A_BROKER)
def test_a_certificate_that_is_not_trusted_has_its_remedy_in_every_tool(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIO_STOMP_CA_FILE", raising=False)
    with threaded_broker(tls_cert=authority().certificate, tls="required") as broker:
        words = line.split()
        address = f"127.0.0.1:{broker.port}"
        assert main([*words, "--url", f"stomps://{address}"]) in (1, 2)
        printed = "".join(capsys.readouterr())
        assert "its certificate is not trusted: " in printed
        assert "; name its certificate authority with --ca-file" in printed
        if words == ["health"]:
            assert main([*words, "--url", f"stomps://{address}", "--insecure-tls"]) == 0
            trusting = [*words, "--url", f"stomps://{address}", "--ca-file", authority().file]
            assert main(trusting) == 0
        if words[0] not in ("dlq", "subs", "explain", "reload", "health"):
            assert main([*words, "--url", f"wss://{address}"]) == 1
            assert printed.partition("its")[2] == capsys.readouterr().err.partition("its")[2]


@pytest.mark.parametrize("tool", ["health", "send"])
def test_trusted_authority_may_be_a_variable(tool: str, tmp_path: Path) -> None:
    words = [tool] if tool == "health" else [tool, "/queue/a", "body"]
    with threaded_broker(tls_cert=authority().certificate, tls="required") as broker:
        url = f"stomps://127.0.0.1:{broker.port}"
        trusting = run(*words, TRIO_STOMP_URL=url, TRIO_STOMP_CA_FILE=authority().file)
        wrong = run(*words, TRIO_STOMP_URL=url, TRIO_STOMP_CA_FILE=str(tmp_path / "none"))
    assert trusting.returncode == 0, trusting
    check_refused(wrong, "TRIO_STOMP_CA_FILE ")
    # Without TLS it has no effect, so it can be set for all brokers of a machine.
    with threaded_broker() as broker:
        plain = run(*words, TRIO_STOMP_URL=broker.url, TRIO_STOMP_CA_FILE=authority().file)
    assert plain.returncode == 0, plain


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (20, "name its certificate authority with --ca-file"),
        (10, "the broker needs a new one"),
        (62, "name the broker in --url as its certificate does"),
        (None, "check scheme and port of --url"),
    ],
)
def test_each_failure_of_tls_has_its_remedy(code: int | None, expected: str) -> None:
    cause: ssl.SSLError = ssl.SSLError("wrong version number")
    if code is not None:
        cause = ssl.SSLCertVerificationError("what")
        cause.verify_code = code
    failed = ConnectFailed("no connection")
    failed.__cause__ = cause
    assert _connect_options.remedy_of(failed) == _connect_options.remedy_of(cause) == expected


def test_the_health_of_a_broker_that_speaks_tls_only() -> None:
    """As the image's HEALTHCHECK does, without a setting of its own."""
    with threaded_broker(tls_cert=authority().certificate, tls="required") as broker:
        ran = run("health", TRIO_STOMP_URL=f"stomp://127.0.0.1:{broker.port}")
    assert ran.stdout.startswith(f"https://127.0.0.1:{broker.port}: healthy"), ran
    assert ran.returncode == 0


def test_secret_is_not_sent_without_a_verified_certificate(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t.o.k")
    with threaded_broker(tls_cert=authority().certificate, tls="required") as broker:
        url = f"stomp://127.0.0.1:{broker.port}"
        ran = run("health", "--token-file", str(tmp_path / "token"), TRIO_STOMP_URL=url)
    assert ran.stdout.startswith(f"http://127.0.0.1:{broker.port}: not healthy: this port speaks")
    assert ran.returncode == 1


# health


CHECKS = [{"name": "store", "status": "failing", "detail": "gone\x1b"}, 5, {}]
HEALTHY = {"/healthz": (200, b'{"status": "ok", "checks": []}')}
SICK = {"/healthz": (503, json.dumps({"status": "failing", "checks": CHECKS}).encode())}
READY, UNREADY = {"/readyz": (200, b"ok\n")}, {"/readyz": (503, b"it stops\n")}


@pytest.mark.parametrize(
    ("pages", "code", "line"),
    [
        (HEALTHY, 0, ": healthy (ok)\n"),
        (SICK, 1, ": not healthy (failing)\n  failing   store: gone\\x1b\n  ?         ?: ?\n"),
        (READY, 0, ": healthy\n"),
        (READY | {"/healthz": (403, b"not you\n")}, 0, ": healthy\n"),
        (READY | {"/healthz": (401, b"who?\n")}, 0, ": healthy\n"),
        (UNREADY, 1, ": not healthy: it stops\n"),
        ({"/readyz": (200, b"[]")}, 0, ": healthy\n"),
        ({"/readyz": (200, b"{}")}, 0, ": healthy\n"),
        ({}, 1, ": not healthy: nothing\n"),
    ],
)
def test_health(
    pages: dict[str, tuple[int, bytes]], code: int, line: str, output_of: OutputOf
) -> None:
    with fake_site(pages) as site:
        assert output_of("health", "--url", site.url, code=code) == f"{site.url}{line}"


def test_health_as_json(output_of: OutputOf) -> None:
    with fake_site(HEALTHY) as site:
        answer = json.loads(output_of("health", "--json", "--url", site.url))
    assert answer == {
        "healthy": True,
        "reachable": True,
        "url": f"{site.url}/healthz",
        "status": 200,
        "details": {"status": "ok", "checks": []},
    }


def test_missing_broker_is_exit_code_2() -> None:
    ran = run("health", "--json", "--url", f"http://127.0.0.1:{free_port()}")
    assert (ran.returncode, ran.stderr) == (2, "")
    printed = json.loads(ran.stdout)
    assert (printed["healthy"], printed["reachable"]) == (False, False)
    assert "connection refused" in printed["reason"]


# explain


ANSWER = {
    "question": {"message-id": "a.1-5"},
    "summary": "delivered, \x1b[31mnot acknowledged",
    "events": [
        {"what": "sent", "ms_ago": 1500.0, "text": "", "destination": "/topic/a", "session": "7"},
        {"what": "lost", "ms_ago": None, "text": "lost at /topic/a", "destination": "/topic/a"},
        {
            "what": "lost",
            "ms_ago": 5,
            "text": "2 slow-consumer by a rule by another",
            "session": "8",
            "count": 2,
            "fate": "slow-consumer",
            "rule": "slow_consumer = 'drop-newest'",
            "policy": "'/topic/*' (p.toml:3)",
        },
        {"what": "lost", "text": "1 gone", "rule": "ttl_ms = 0", "policy": ""},
    ],
    "horizon_s": 12.25,
}


def explaining(answer: object) -> AbstractContextManager[FakeSite]:
    return fake_site({"/api/v1/explain": (200, json.dumps(answer).encode())})


def test_explain_for_people(output_of: OutputOf) -> None:
    with explaining(ANSWER) as site:
        lines = output_of("explain", "a.1-5", "--url", site.url).splitlines()
    assert lines == [
        "delivered, \\x1b[31mnot acknowledged",
        "        -1.500 s  sent (destination /topic/a, session 7)",
        "                  lost: lost at /topic/a",
        "        -0.005 s  lost: 2 slow-consumer (session 8), decided by"
        " slow_consumer = 'drop-newest' of policy '/topic/*' (p.toml:3)",
        "                  lost: 1 gone, decided by ttl_ms = 0",
        "(everything of the last 12.2 s is remembered)",
    ]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            {"summary": "one; two; three", "facts": ["one; two", "three\x1b"], "events": []},
            "one; two\nthree\\x1b\n",
        ),
        ({}, "the broker gave no answer\n"),
    ],
    ids=["facts", "of-another-shape"],
)
def test_each_fact_of_an_explanation_has_a_line(
    answer: object, lines: str, output_of: OutputOf
) -> None:
    with explaining(answer) as site:
        assert output_of("explain", "a-1", "--url", site.url) == lines


@pytest.mark.parametrize(
    ("line", "question"),
    [
        (["a.1-5"], {"message-id": "a.1-5"}),
        (["--destination", "/topic/a b&c"], {"destination": "/topic/a b&c"}),
        (["--destination", "d", "--session", "5"], {"destination": "d", "session": "5"}),
        (["--destination", "d", "--user", "u"], {"destination": "d", "user": "u"}),
    ],
)
def test_explain_asks_the_broker(
    line: list[str], question: dict[str, str], output_of: OutputOf
) -> None:
    with explaining(ANSWER) as site:
        assert json.loads(output_of("explain", *line, "--json", "--url", site.url)) == ANSWER
        target = urlsplit(site.asked[0][0])
    assert json.loads(parse_qs(target.query)["q"][0]) == question


def test_a_broker_explains_itself() -> None:
    with threaded_broker() as broker:
        assert run("send", "/queue/a", "x", "--url", broker.url).returncode == 0
        ran = run("explain", "--destination", "/queue/a", "--url", broker.url)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("/queue/a: ")
        assert " s  queued: 1 from session " in ran.stdout
        check_refused(
            run("explain", "nonsense", "--url", broker.url), "is not a message-id", code=1
        )


# --json of the older tools


def test_passwd_for_programs(tmp_path: Path) -> None:
    pytest.importorskip("argon2")
    file = str(tmp_path / "users")
    added = run("passwd", "add", "--json", "--stdin", file, "u", stdin="geheim\n")
    assert json.loads(added.stdout) == {
        "file": file,
        "done": "set the passcode of u",
        "mode": "0600",
    }
    for passcode, is_right in (("geheim", True), ("falsch", False)):
        ran = run("passwd", "verify", "--json", "--stdin", file, "u", stdin=f"{passcode}\n")
        assert json.loads(ran.stdout) == {"file": file, "user": "u", "right": is_right}
        assert ran.returncode == (not is_right)
    assert json.loads(run("passwd", "del", "--json", file, "u").stdout)["done"] == "removed u"


def test_acl_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "acl.toml"
    rule = '[[rule]]\nuser = "u"\nallow = ["send"]\nto = "/topic/a"\n'
    file.write_text(rule + rule)
    checked = json.loads(run("acl", "check", "--json", str(file)).stdout)
    assert (checked["rules"], checked["groups"], checked["compared_all"]) == (2, 0, True)
    assert [sorted(each) for each in checked["hidden"]] == [["by", "rule"]]
    shown = json.loads(run("acl", "show", "--json", "--acl-file", str(file)).stdout)
    assert shown[0]["allow"] is True
    assert (shown[0]["actions"], shown[0]["to"], shown[0]["users"]) == (
        ["send"],
        ["/topic/a"],
        ["u"],
    )


def test_store_for_programs(tmp_path: Path) -> None:
    source, copy = tmp_path / "a", str(tmp_path / "b")
    store = JournalStore(str(source))
    fill(store)
    store.close()
    exported = run("store", "export", str(source)).stdout
    imported = json.loads(run("store", "import", "--json", copy, stdin=exported).stdout)
    assert imported == {"message": 5, "setting": 1, "stream": 1, "streamed": 3}
    compacted = json.loads(run("store", "compact", "--json", copy).stdout)
    assert set(compacted) == {"bytes_before", "bytes_now"}


def test_times_of_the_command_line() -> None:
    assert time_ms("@1700000000.5") == 1_700_000_000_500
    assert time_ms("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert abs(time.time() * 1000 - 600_000 - time_ms("10m")) < 60_000
    with pytest.raises(argparse.ArgumentTypeError, match="'10x' is no time; write one like"):
        time_ms("10x")


def test_a_secret_that_others_may_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "secret", "geheim\n")
    Path(path).chmod(0o644)
    assert _connect_options.read_secret(path, "--token-file") == "geheim"
    assert "has mode 0644: other users may read it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("errors", "kind", "expected"),
    [
        ([ClientError("a"), ClientError("b")], CannotDo, "a!"),
        ([ClientError("a"), KeyboardInterrupt()], KeyboardInterrupt, ""),
        ([ClientError("a"), BrokenPipeError()], BrokenPipeError, ""),
        ([OptionError("o"), ClientError("a")], OptionError, "o!"),
        ([ClientError("a"), RuntimeError("a bug")], BaseExceptionGroup, ""),
        ([LinkLost("gone"), BaseExceptionGroup("", [LinkLost("x")])], CannotDo, "h: gone; try"),
    ],
)
def test_only_one_of_many_errors_is_printed(
    errors: list[BaseException], kind: type[BaseException], expected: str
) -> None:
    address = _connect_options.Address("h", 1, False)
    found = _session._blame(
        BaseExceptionGroup("", errors),
        lambda error: _session._explained(error, address).replace("h:1", "h"),
        lambda: "!",
    )
    assert type(found) is kind or isinstance(found, kind)
    assert expected in str(found)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ConnectFailed("x"), "is the broker running there? check --url"),
        (AuthenticationError("c", "x", {}), "check --login and the passcode"),
        (NotAuthorized("c", "x", {}), "trio-stomp acl test"),
        (LinkLost("x"), "try again"),
        (BrokerError("c", "x\x1b", {}), "x\\x1b (c)"),
    ],
)
def test_every_error_has_its_remedy(error: ClientError, remedy: str) -> None:
    assert remedy in _session._explained(error, _connect_options.Address("h", 1, False))


def test_a_question_controls_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = "/queue/€\x1b[31m\x9b1m\u202e"
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert ask_yes(f"Delete {queue}?")
    assert capsys.readouterr().err == r"Delete /queue/€\x1b[31m\x9b1m\u202e? [y/N] "


def test_a_process_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    say("nobody reads this")
    put("nor this")
    assert main(["config", "show"]) == 0
