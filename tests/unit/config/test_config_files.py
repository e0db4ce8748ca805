"""Settings from files, the environment and the command line: precedence and errors."""

from pathlib import Path

import pytest

from tests.support.files import Write
from tests.support.files import write as write
from trio_stomp.base import OptionError
from trio_stomp.broker import Action, DestinationPolicy
from trio_stomp.cli import parse
from trio_stomp.config import Settings, Source, load, options, shown, toml, variable_of

MAX_FILES = 1_000
MAX_FILE_BYTES = 1024 * 1024


def refused(path: str | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(OptionError) as caught:
        load(path, environ or {})
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


# Reading.


def test_only_named_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "conf.d").mkdir()
    for name in ("trio_stomp.toml", "stompserver.conf", "conf.d/x.toml"):
        (tmp_path / name).write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    found = load()
    assert (found.settings, found.files, found.given) == (Settings(), (), {})
    assert parse([], {}).settings == Settings()


def test_a_table_for_each_group(write: Write):
    path = write(
        "listen.port = 3000\n[frames]\nmax_headers = 9\n[server]\nlinger_s = 3\n"
        "[protocol]\nrequire_host = true\n[diag]\n[store]\ndata_dir = '/d'\n"
    )
    found = load(path)
    assert found.settings == Settings.of(
        port=3000, max_headers=9, linger_s=3.0, require_host=True, data_dir="/d"
    )
    assert type(found.settings.server.linger_s) is float
    assert found.files == (path,)


@pytest.mark.parametrize("spec", options(), ids=lambda spec: spec.name)
def test_each_option_can_be_set_in_file_variable_and_flag(spec, write: Write):
    path = write(f"[{spec.group}]\n{spec.name} = {toml(spec.default)}\n")
    assert load(path).settings == Settings()
    assert load(path).source(spec.name) == Source("file", path, 2)
    variable = variable_of(spec)
    assert variable == f"TRIO_STOMP__{spec.group.upper()}__{spec.name.upper()}"
    found = load(path, {variable: str(spec.default)})
    assert found.settings == Settings()
    assert found.source(spec.name) == Source("environment", variable)


def test_policies_and_rules_stand_beside_the_options(write: Write):
    path = write(
        '[destinations."/topic/prices.>"]\nstream = true\n[destinations."/queue/a"]\nttl_ms = 5\n'
        "[groups]\nops = ['ann']\n[certificates]\n'CN=a' = 'ann'\n"
        "\n[[rule]]\nallow = 'send'\nto = '**'\ngroup = 'ops'\n"
    )
    settings = load(path).settings
    assert settings.destinations == (
        ("/topic/prices.>", DestinationPolicy(stream=True)),
        ("/queue/a", DestinationPolicy(ttl_ms=5)),
    )
    assert settings.rules is not None
    assert settings.rules.rules[0].actions == {Action.SEND}
    assert settings.rules.rules[0].location == f"{path}:10 (rule 1)"
    assert settings.rules.certificates == {"CN=a": "ann"}


def test_a_file_of_windows_is_read(write: Write):
    path = write("\ufeff[listen]\r\n\r\nport = 3000\r\n")
    found = load(path)
    assert found.settings.listen.port == 3000
    assert str(found.source("port")) == f"{path}:3"


# Precedence.


def test_later_wins_and_all_is_remembered(write: Write, tmp_path: Path):
    main = write("[listen]\nport = 1\nhost = '::1'\n[server]\nlinger_s = 1.0\n", "main.toml")
    write("[listen]\n\nport = 3\n", "conf.d/20.toml")
    write("[listen]\nport = 2\n", "conf.d/10.toml")
    for junk in ("conf.d/.hidden.toml", "conf.d/30.toml~", "conf.d/30.txt"):
        write("nonsense", junk)
    environ = {"trio_stomp__Listen__PORT": "4", "TRIO_STOMP_PORT": "tcp://10.0.0.1:61613"}
    found = parse(["--config", main, "--port", "5"], environ).configuration
    assert [each.value for each in found.given["port"]] == [1, 2, 3, 4, 5]
    assert [str(each.source) for each in found.given["port"]] == [
        f"{main}:2",
        f"{tmp_path}/conf.d/10.toml:2",
        f"{tmp_path}/conf.d/20.toml:3",
        "trio_stomp__Listen__PORT",
        "--port",
    ]
    assert found.settings == Settings.of(port=5, host="::1", linger_s=1.0)
    assert found.source("max_headers") == Source()
    assert str(found.source("max_headers")) == "default"
    assert found.files == (main, *(f"{tmp_path}/conf.d/{n}0.toml" for n in (1, 2)))
    assert parse(["--config", main], environ).settings.listen.port == 4
    assert parse(["--config", main], {}).settings.listen.port == 3


def test_a_directory_is_read_in_the_order_of_names(write: Write, tmp_path: Path):
    write("[listen]\nport = 2\n", "b.toml")
    write("[listen]\nport = 1\n", "a.toml")
    write("[listen]\nport = 9\n", "conf.d/c.toml")  # beside a file, not within a directory
    assert load(str(tmp_path)).settings.listen.port == 2


def test_an_empty_directory_is_a_mistake(tmp_path: Path):
    assert refused(str(tmp_path)).startswith(f"{tmp_path}: has no file of settings")


def test_the_variable_names_the_file_where_no_flag_does(write: Write):
    one, two = write("[listen]\nport = 1\n", "1.toml"), write("[listen]\nport = 2\n", "2.toml")
    assert load(None, {"TRIO_STOMP_CONFIG": one}).settings.listen.port == 1
    assert load(two, {"TRIO_STOMP_CONFIG": one}).settings.listen.port == 2
    assert load(None, {"TRIO_STOMP_CONFIG": ""}).files == ()
    assert parse(["-C", two], {"TRIO_STOMP_CONFIG": one}).settings.listen.port == 2
    assert refused("") == "--config names no file; leave it out to read none"


def test_policies_of_later_files_come_later_or_in_place(write: Write):
    path = write("[destinations.'/queue/a']\nttl_ms = 1\n[destinations.'/queue/b']\nttl_ms = 1\n")
    write("[destinations.c]\n[destinations.'/queue/a']\nmax_messages = 2\n", "conf.d/1.toml")
    found = load(path)
    assert found.settings.destinations == (
        ("/queue/a", DestinationPolicy(max_messages=2)),
        ("/queue/b", DestinationPolicy(ttl_ms=1)),
        ("c", DestinationPolicy()),
    )
    assert [each.source.line for each in found.policies["/queue/a"]] == [1, 2]


def test_a_policy_file_of_the_command_line_wins_as_a_whole(write: Write):
    path = write("[destinations.a]\nttl_ms = 1\n")
    policies = write("['/queue/b']\nttl_ms = 2\n", "policies.toml")
    found = parse(["-C", path, "--policies", policies], {}).configuration
    assert found.settings.destinations == (("/queue/b", DestinationPolicy(ttl_ms=2)),)
    assert str(found.policies["/queue/b"][0].source) == f"--policies {policies}"


def test_rules_of_all_files_are_one_list(write: Write):
    rule = "[[rule]]\nallow = 'send'\nto = 'TO'\ngroup = 'ops'\n"
    path = write("[groups]\nops = ['ann']\ndevs = []\n" + rule.replace("TO", "a"))
    later = write("[groups]\nops = ['bob']\n" + rule.replace("TO", "b"), "conf.d/1.toml")
    rules = load(path).settings.rules
    assert rules is not None
    assert [(each.patterns, each.location) for each in rules.rules] == [
        (("a",), f"{path}:4 (rule 1)"),
        (("b",), f"{later}:3 (rule 1)"),
    ]
    assert rules.groups == {"ops": {"bob"}, "devs": frozenset()}


def test_rules_stand_in_one_place(write: Write):
    path = write("[security]\nacl_file = 'acl.toml'\n[[rule]]\nallow = 'all'\nto = '**'\n")
    assert refused(path) == (
        f"{path}:2: acl_file names a file of rules, but {path}:3 (rule 1) is a rule, too;"
        " keep them in one place"
    )
    # The environment may name other rules for this start, or select those of the settings file.
    assert load(path, {"TRIO_STOMP__SECURITY__ACL_FILE": "x"}).settings.rules is None
    assert load(path, {"TRIO_STOMP__SECURITY__ACL_FILE": ""}).settings.rules is not None


def test_groups_without_a_rule_would_lock_everybody_out(write: Write):
    path = write("[certificates]\n'CN=a' = 'ann'\n")
    assert refused(path).startswith(f"{path}: has [groups] or [certificates], but no [[rule]]")


# The reload.


def test_a_reload_reads_files_again_with_the_same_command_line(write: Write):
    path = write("[listen]\nport = 1\n[server]\nlinger_s = 1.0\n")
    environ = {"TRIO_STOMP__SERVER__MAX_CONNECTIONS": "7"}
    arguments = parse(["-C", path, "TTL=5", "--port", "2"], environ)
    environ.clear()
    write("[listen]\nport = 9\n[server]\nlinger_s = 4.0\n")
    assert arguments.reload() == Settings.of(port=2, linger_s=4.0, ttl_ms=5, max_connections=7)
    assert arguments.settings.server.linger_s == 1.0
    write("[listen\n")
    with pytest.raises(OptionError, match=":1: is no TOML"):
        arguments.reload()


def test_arguments_made_by_hand_have_nothing_to_reload():
    assert type(parse([], {}))(Settings(), "info").reload() == Settings()


# Refused files. AT is the file and the line.

BAD = [
    ("[listen]\nport = '1'\n", "AT2: port is '1', but must be a whole number; write it as in port"),
    ("[listen]\nport = 1.5\n", "AT2: port is 1.5, but must be a whole number"),
    ("[listen]\nport = true\n", "AT2: port is True, but must be a whole number"),
    ("[listen]\nport = -1\n", "AT2: port is -1, but must be 0 or more"),
    ("[listen]\n# port = 1\nport = 65536\n", "AT3: port is 65536, but must be 65535 or less"),
    ("[listen]\nhost = ''\n", "AT2: host is '', but must be a host name or an address"),
    ("[listen]\nhost = 1979-05-27\n", "AT2: host is datetime.date(1979, 5, 27), but must be text"),
    ("[server]\nlinger_s = inf\n", "AT2: linger_s is inf, but must be a finite number"),
    ("[server]\nlinger_s = '2'\n", "must be a number; write it as in linger_s = 2.0"),
    ("[broker]\nslow_consumer = 'x'\n", "AT2: slow_consumer is 'x', but must be one of disconnect"),
    ("server = { linger_s = -1.0 }\n", "AT1: linger_s is -1.0, but must be 0.0 or more"),
    ("# x\nserver.linger_s = -1.0\n", "AT2: linger_s is -1.0, but must be 0.0 or more"),
    (f"[listen]\nhost = [{'1,' * 500}]\n", "AT2: host is [1, 1"),
    # Names.
    ("[listn]\n", "AT1: unknown table [listn]; did you mean listen?; there are listen, frames"),
    ("\n[zzz]\n", "AT2: unknown table [zzz]; there are listen, frames"),
    ('["/topic/a"]\n', 'AT1: unknown table ["/topic/a"]; write [destinations."/topic/a"]'),
    ("port = 1\n", "AT1: port is outside of a table; write it under [listen]"),
    ("prot = 1\n", "AT1: unknown key 'prot'; did you mean port?; keys belong in tables"),
    ("zzzzz = 1\n", "AT1: unknown key 'zzzzz'; keys belong in tables, as port under [listen]"),
    ("listen = 1\n", "AT1: listen must be a table, which begins with [listen]"),
    ("[[listen]]\nport = 1\n", "AT1: listen must be a table"),
    ("[listen]\n\nprot = 1\n", "AT3: unknown key 'prot' in [listen]; did you mean port?"),
    ("[server]\nport = 1\n", "AT2: [server] has no port; write it under [listen]"),
    ("[listen]\nmax_conections = 1\n", "AT2: unknown key 'max_conections' in [listen]; did you"),
    ("[listen]\nzzzzz = 1\n", "AT2: unknown key 'zzzzz' in [listen]"),
    # Options that require each other.
    ("[store]\n\nstore = 'sql'\n", "AT3: store is 'sql', which needs a store_url"),
    ("[store]\nstore_url = 'x'\ndata_dir = 'y'\n", "AT3: data_dir and store_url are both given"),
    ("[transport]\ntls_port = 1\n", "AT2: tls_port needs a certificate: give tls_cert, too"),
    # Syntax.
    ("[listen]\nport 1\n", "AT2: is no TOML: Expected '=' after a key in a key/value pair (column"),
    ("[listen]\n\nport = 1\nport = 2\n", "AT4: is no TOML: Cannot overwrite a value (column 9)"),
    ("a = '''\n\n", "AT2: is no TOML: "),
    ("a = [\n\n1,", "AT3: is no TOML: "),
    (f"a = {'9' * 5000}\n", "is no TOML: Exceeds the limit"),
    ("a = " + "[" * 5000, "is nested too deep"),
    # Policies.
    ("destinations = 1\n", "AT1: destinations must be a table; policies begin with [destinations"),
    ("[destinations]\nttl_ms = 1\n", "AT2: ttl_ms is outside of a policy"),
    (
        "[destinations.'/topic/a']\nttl = 1\n",
        "AT2: policy '/topic/a': unknown field 'ttl'; did you mean ttl_ms?; there are ttl_ms, max",
    ),
    ("[destinations.a]\n\nttl_ms = '1'\n", "AT3: policy 'a': ttl_ms is '1', but must be a whole"),
    ("[destinations.a]\nttl_ms = 1\nmax_bytes = -1\n", "AT3: policy 'a': max_bytes is -1, but mus"),
    ("\n[destinations.'/topic/>.b']\n", "AT2: policy '/topic/>.b': "),
    ("[destinations.'']\n", "AT1: policy '': pattern is '', but must not be empty"),
    # Rules.
    ("[groups]\nops = 1\n", "AT2: group 'ops' is 1, but must be a list"),
    ("groups = 1\n", "AT1: groups must be a table"),
    ("[certificates]\n\nx = 1\n", "AT3: certificate 'x' is 1, but must be a user"),
    ("[rule]\nallow = 'send'\n", "AT1: rules begin with [[rule]], in double brackets"),
    ("[[rule]]\nalow = 'send'\nto = 'a'\n", "AT1 (rule 1): unknown key 'alow'; did you mean allow"),
    ("x = 1\n[[rule]]\n", "AT1: unknown key 'x'"),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=range(len(BAD)))
def test_mistake_is_reported_with_file_line_rule_and_remedy(write: Write, text: str, expected: str):
    path = write(text)
    message = refused(path)
    if expected.startswith("AT"):
        assert message.startswith(expected.replace("AT", f"{path}:", 1))
    else:
        assert message.startswith(path)
        assert expected in message


def test_mistake_is_reported_for_the_file_that_counts(write: Write, tmp_path: Path):
    path = write("[listen]\nport = -1\n")
    later = write("[listen]\n\nport = -2\n", "conf.d/1.toml")
    assert refused(path).startswith(f"{later}:3: port is -2, but")
    result = refused(path, {"TRIO_STOMP__LISTEN__PORT": "-3"})
    assert result.startswith("TRIO_STOMP__LISTEN__PORT: port is -3, but must be 0 or more")
    with pytest.raises(OptionError, match=r"^port is -4, but must be 0 or more$"):
        parse(["-C", path, "--port", "-4"], {})
    # The value of the command line is in force, whatever the file says.
    assert parse(["-C", path, "--port", "4"], {}).settings.listen.port == 4


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TRIO_STOMP__LISTEN__PROT", "1", "; did you mean TRIO_STOMP__LISTEN__PORT?"),
        ("TRIO_STOMP__PORT", "1", "; did you mean TRIO_STOMP__LISTEN__PORT?"),
        ("TRIO_STOMP__SERVER__PORT", "1", "; did you mean TRIO_STOMP__LISTEN__PORT?"),
        ("trio_stomp__listen__prot", "1", "; did you mean TRIO_STOMP__LISTEN__PORT?"),
        ("TRIO_STOMP__", "1", ""),
    ],
)
def test_unknown_variable_is_reported_with_the_nearest(variable: str, text: str, expected: str):
    assert refused(None, {variable: text}) == f"unknown variable {variable}{expected}"


def test_a_bad_variable_is_named():
    result = refused(None, {"TRIO_STOMP__LISTEN__PORT": "x"})
    assert result == "TRIO_STOMP__LISTEN__PORT: port is 'x', but must be a whole number"
    result = refused(None, {"TRIO_STOMP__LISTEN__PORT": "1", "trio_stomp__listen__port": "1"})
    assert result == (
        "TRIO_STOMP__LISTEN__PORT and trio_stomp__listen__port are the same variable; unset one"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stompserver.conf", ":port: 61613\n"),
        ("stompserver.conf", "# a comment\r\n---\r\n  \n:daemon: true\n"),
        ("x.yaml", "[listen]\n"),
        ("X.YML", "port: 1\n"),
    ],
)
def test_stompservers_yaml_is_sent_to_the_import(write: Write, name: str, text: str):
    path = write(text, name)
    assert refused(path) == (
        f"{path}: is YAML, as of stompserver, and settings are TOML; convert it with:"
        f" python -m trio_stomp config import {path} > trio_stomp.toml"
    )


def test_missing_file_is_named(tmp_path: Path, write: Write):
    assert refused(str(tmp_path / "none")) == f"{tmp_path}/none: no such file or directory"
    assert "null" in refused("a\0b")
    path = write("", "ok.toml")
    (tmp_path / "conf.d").write_text("not a directory")
    assert load(path).files == (path,)


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def deny(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", deny)
    assert refused(str(tmp_path)) == f"{tmp_path}: permission denied"


def test_file_that_is_not_text_is_no_toml(tmp_path: Path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"[listen]\nport = 1\n# \xff\n")
    assert refused(str(path)) == f"{path}:3: is no TOML: the text is not UTF-8"


def test_sizes_are_bounded(tmp_path: Path, write: Write):
    path = write("#" * MAX_FILE_BYTES)
    assert load(path).settings == Settings()
    assert f"more than {MAX_FILE_BYTES} bytes; split it" in refused(
        write("#" * (MAX_FILE_BYTES + 1))
    )
    many = tmp_path / "many"
    many.mkdir()
    for number in range(MAX_FILES):
        (many / f"{number}.toml").touch()
    assert len(load(str(many)).files) == MAX_FILES
    (many / "x.toml").touch()
    assert f"has {MAX_FILES + 1} files, the limit is {MAX_FILES}" in refused(str(many))


# The display of values.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (2.0, "2.0"),
        (1e30, "1e+30"),
        ('a\n"b"\\\x7fé', '"a\\n\\"b\\"\\\\\\u007fé"'),
        ((0.5, 1.0), "[0.5, 1.0]"),
        ("postgresql://ann:s:e@c/r@et@db/x", '"postgresql://ann:***@db/x"'),
        (
            "postgresql://db/x?user=a&Password=secret&b=c",
            '"postgresql://db/x?user=a&Password=***&b=c"',
        ),
        ("sqlite:///a:b@c", '"sqlite:///a:b@c"'),
        ("nats://to:k/e@n@h:1", '"nats://to:***@h:1"'),
        ("nats://token@h1:1,nats://h2", '"nats://***@h1:1,nats://h2"'),
        ("nats://h1:1,nats://token@h2", '"nats://h1:***@h2"'),
        ("nats://us@er:pass@h", '"nats://***@h"'),
        ("token@h1", '"***@h1"'),
        ("user:p/a@h1:1", '"***@h1:1"'),
        ("token@h1,nats://h2", '"***@h1,nats://h2"'),
        ("dir/a@b", '"dir/a@b"'),
    ],
)
def test_values_are_shown_as_toml_and_without_passwords(value: object, text: str):
    import tomllib

    assert shown(value) == text
    back = tomllib.loads(f"x = {toml(value)}")["x"]
    assert (tuple(back) if isinstance(back, list) else back) == value
