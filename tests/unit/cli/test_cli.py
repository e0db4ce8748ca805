"""The command line: options, aliases, the seeds' words, and one clear line for a mistake."""

import pytest

from trio_stomp.base import OptionError
from trio_stomp.cli import parse
from trio_stomp.config import Settings, options


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", {}),
        ("-d", {"log_level": "debug"}),
        ("--debug", {"log_level": "debug"}),
        ("--log-level warning", {"log_level": "warning"}),
        ("--port 0", {"port": 0}),
        ("-p 3000 -b ::1", {"port": 3000, "host": "::1"}),
        ("-p3000", {"port": 3000}),
        ("--ttl 5000", {"ttl_ms": 5000}),
        ("--ttl-ms=5000", {"ttl_ms": 5000}),
        ("--writers 4", {"processors": 4}),
        ("--processors 4", {"processors": 4}),
        ("--require-host", {"require_host": True}),
        ("--require-host --no-require-host", {}),
        ("--diag-interval-s 0.5", {"diag_interval_s": 0.5}),
        ("--slow-consumer drop-oldest", {"slow_consumer": "drop-oldest"}),
        ("--port 1 --port 2", {"port": 2}),
        (
            "processors=10 port=3000 max_input_queue_size=1000 max_stale_queue_size=1000 TTL=5000",
            {
                "processors": 10,
                "port": 3000,
                "max_input_queue_size": 1000,
                "max_stale_queue_size": 1000,
                "ttl_ms": 5000,
            },
        ),
        ("TTL=5 port=3000", {"port": 3000, "ttl_ms": 5}),
        ("ack_timeout=30000", {"ack_timeout_ms": 30000}),
        ("processors=0 port=0 max_input_queue_size=0 max_stale_queue_size=0 TTL=0", {}),
        ("port=3000 --ttl 7 processors=2", {"port": 3000, "ttl_ms": 7, "processors": 2}),
        ("--port 0 port=3000", {"port": 0}),
        ("port=3000 --port 4000", {"port": 4000}),
    ],
)
def test_options_and_the_words_of_the_seed(line: str, values: dict[str, object]) -> None:
    assert parse(line.split()).settings == Settings.of(**values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--prot 5", "unknown option --prot; did you mean --port? (--help lists all)"),
        ("--max-bod 5", "unknown option --max-bod; did you mean --max-body-bytes? (--help lists"),
        ("-z", "unknown option -z (--help lists all)"),
        ("--confg x", "unknown option --confg; did you mean --config? (--help lists all)"),
        ("--config", "argument -C/--config: expected one argument"),
        ("-C none.toml", "none.toml: no such file or directory"),
        ("--port", "argument -p/--port: expected one argument"),
        ("--port x", "port is 'x', but must be a whole number"),
        ("--port -1", "port is -1, but must be 0 or more"),
        ("--port 65536", "port is 65536, but must be 65535 or less"),
        ("--connect-timeout-s nan", "connect_timeout_s is nan, but must be a finite number"),
        ("--stale-overflow x", "stale_overflow is 'x', but must be one of drop-newest, drop-ol"),
        ("--log-level x", "log_level is 'x', but must be one of debug, info, warning, error"),
        ("prot=1", "unknown word 'prot=1'; did you mean port? (known: processors, port, max_inp"),
        ("ttl=1", "unknown word 'ttl=1' (known: "),
        ("port", "unknown word 'port'"),
        ("serve", "unknown word 'serve'"),
        ("port=x", "port is 'x', but must be a whole number"),
        ("port=-1", "port is -1, but must be 0 or more"),
        (
            "max_body_bytes=5",
            "'max_body_bytes=5' is not a word of stompica's; use --max-body-bytes",
        ),
        ("-q files", "unknown queuetype 'files'; did you mean file? (known: memory, file, dbm, "),
        ("-q x", "unknown queuetype 'x' (known: memory, file, dbm, activerecord)"),
        ("-q", "argument -q/--queuetype: expected one argument"),
        ("-c soon", "checkpoint is 'soon', but must be a number"),
        ("-c -1", "checkpoint_s is -1.0, but must be 0 or more"),
    ],
)
def test_mistake_is_reported_with_its_remedy(line: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(line.split())
    assert str(caught.value).startswith(message)


def test_help_is_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        parse(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    text = " ".join(printed.split())
    for spec in options():
        assert spec.flag in text
        # A narrow terminal breaks words at their hyphens.
        assert spec.help.replace("- ", "-") in text.replace("- ", "-")
    assert "-C FILE, --config FILE" in text
    for other in ("-h, --help", "--version", "--log-level", "-d, --debug", "-p PORT", "-b HOST"):
        assert other in text
    for alias in ("--ttl MS", "--writers N", "TTL=5000", "compatibility with stompica"):
        assert alias in text
    for word in ("-q ", "--queuetype", "-s DIR", "-w DIR", "-c SECONDS", "store --help"):
        assert word in printed
    assert text.count("(default: ") == len(options())
    assert max(map(len, printed.splitlines())) <= 100
