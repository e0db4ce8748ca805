"""``doctor``: its checks of a machine, and its verdicts."""

import ctypes
import errno
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from _crash.ports import free_port, free_ports

from tests.support.commands import CANNOT, run_command
from tests.support.files import save
from tests.support.tls import authority
from tests.support.tool_fakes import answering, fake_site, run
from trio_stomp import OptionError
from trio_stomp.cli.commands._doctor import _disk, _doctor, _machine
from trio_stomp.testing import threaded_broker


def only(findings: object) -> _machine.Finding:
    (found,) = list(findings)  # type: ignore[call-overload]
    assert isinstance(found, _machine.Finding)
    return found


def test_all_of_it_as_an_operator_runs_it(tmp_path: Path) -> None:
    ran = run("doctor", "--port", "0", "--data-dir", str(tmp_path / "new"), "--connections", "10")
    assert (ran.returncode, ran.stderr) == (0, "")
    names = {line.split()[1] for line in ran.stdout.splitlines() if line[0] != " "}
    assert {"python", "user", "descriptors", "port", "clock", "data", "space", "java"} <= names
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_fail_is_exit_1_and_json_tells_all(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ran = run("doctor", "--port", "0", "--data-dir", str(file), "--json", "--progress")
    assert ran.returncode == 1
    printed = json.loads(ran.stdout)
    assert printed["ok"] is False
    failed = [each for each in printed["checks"] if each["status"] == "fail"]
    assert failed == [
        {
            "name": "data",
            "status": "fail",
            "text": f"{file} is not a directory",
            "remedy": "name another with --data-dir",
        }
    ]
    assert "doctor: 100 %" in ran.stderr


def checked(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, list[str]]:
    """Return the findings by the name of the check."""
    run_command("doctor", [*argv, "--json"])
    found: dict[str, list[str]] = {}
    for each in json.loads(capsys.readouterr().out)["checks"]:
        found.setdefault(each["name"], []).append(each["text"])
    return found


def test_it_checks_the_settings_that_serve_would_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith("TRIO_STOMP"):
            monkeypatch.delenv(name)
    first, second, third, tls = free_ports(4)
    data = tmp_path / "data"
    file = tmp_path / "broker.toml"
    file.write_text(
        f"[listen]\nport = {first}\n[server]\nmax_connections = 17\n[store]\ndata_dir = '{data}'\n"
    )
    found = checked(capsys, "--config", str(file))
    assert found["port"] == [f"127.0.0.1:{first} is free"]
    assert found["data"] == [f"{data} can be made"]
    assert "of 17 connections" in found["descriptors"][0].replace("for 17", "of 17")

    monkeypatch.setenv("TRIO_STOMP_CONFIG", str(file))
    assert checked(capsys)["port"] == [f"127.0.0.1:{first} is free"]
    monkeypatch.setenv("TRIO_STOMP__LISTEN__PORT", str(second))
    assert checked(capsys)["port"] == [f"127.0.0.1:{second} is free"]
    printed = checked(capsys, "-p", str(third), "--data-dir", str(tmp_path), "--connections", "5")
    assert printed["port"] == [f"127.0.0.1:{third} is free"]
    assert printed["data"] == [f"{tmp_path} is there"]
    assert "for 5 connections" in printed["descriptors"][0]

    certificate = str(authority().certificate)
    monkeypatch.setenv("TRIO_STOMP__TRANSPORT__TLS_CERT", certificate)
    monkeypatch.setenv("TRIO_STOMP__TRANSPORT__TLS_PORT", str(tls))
    found = checked(capsys)
    assert found["port"] == [f"127.0.0.1:{port} is free" for port in (second, tls)]
    assert "tls" in found


def test_settings_refused_by_serve_are_the_operators_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_STOMP__LISTEN__PROT", "1")
    with pytest.raises(OptionError, match="did you mean TRIO_STOMP__LISTEN__PORT"):
        run_command("doctor", [])
    monkeypatch.delenv("TRIO_STOMP__LISTEN__PROT")
    with pytest.raises(OptionError, match="tls_key needs a certificate"):
        run_command("doctor", ["--tls-key", "k.pem"])


def test_a_remedy_stands_below_its_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [
        _machine.Finding(_machine.FAIL, "a", "bad\x1b", "do it"),
        _machine.Finding(_machine.OK, "long", "fine"),
    ]
    for name in [each for each in vars(_doctor) if each.startswith("check_")]:
        monkeypatch.setattr(_doctor, name, lambda *_: iter(()))
    monkeypatch.setattr(_doctor, "check_user", lambda: iter(findings))
    assert run_command("doctor", ["--no-progress"]) == CANNOT
    assert capsys.readouterr().out == (
        "FAIL  a     bad\\x1b\n            -> do it\nok    long  fine\n"
    )


# The process.


def test_version_is_printed_and_windows_gets_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(_machine.check_python()).status == _machine.OK
    monkeypatch.setattr(sys, "platform", "win32")
    assert only(_machine.check_python()).status == _machine.WARN
    assert list(_machine.check_descriptors(5)) == []
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _machine.is_synchronized() is None


@pytest.mark.parametrize(("user", "status"), [(0, _machine.WARN), (1000, _machine.OK)])
def test_running_as_root_is_a_warning(
    user: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert only(_machine.check_user()).status == status


@pytest.mark.parametrize(
    ("limits", "status", "text"),
    [
        (
            (1024, 100_000),
            _machine.OK,
            "soft limit 1024, hard limit 100000: enough for 20000 connections",
        ),
        ((1024, -1), _machine.OK, "soft limit 1024, hard limit none: enough for 20000"),
        ((1024, 4096), _machine.WARN, "enough for about 4032 of 20000 connections"),
        ((50, 50), _machine.FAIL, "enough for about 0 of 20000 connections"),
    ],
)
def test_limits_of_descriptors_are_judged(
    limits: tuple[int, int], status: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    found = only(_machine.check_descriptors(20_000))
    assert found.status == status
    assert text in found.text
    assert ("ulimit -Hn 20064" in found.remedy) is (status != _machine.OK)


# The port.


def test_a_free_port_is_reported_as_free() -> None:
    port = free_port()
    assert only(_machine.check_port("127.0.0.1", port)) == _machine.Finding(
        _machine.OK, "port", f"127.0.0.1:{port} is free"
    )


def test_a_broker_that_runs_already() -> None:
    with threaded_broker() as broker:
        found = only(_machine.check_port("127.0.0.1", broker.port))
    assert found.status == _machine.OK
    assert found.text == (
        f"127.0.0.1:{broker.port}: another trio_stomp is running there (process {os.getpid()})"
    )


@pytest.mark.parametrize(
    ("pages", "status", "text"),
    [
        ({"/livez": (200, b"ok\n")}, _machine.OK, "another trio_stomp is running there"),
        ({"/livez": (200, b"<html>")}, _machine.FAIL, "is in use by another program"),
        ({}, _machine.FAIL, "is in use by another program"),
    ],
)
def test_another_server_answers(
    pages: dict[str, tuple[int, bytes]], status: str, text: str
) -> None:
    with fake_site(pages) as site:
        found = only(_machine.check_port("127.0.0.1", site.port))
    assert found.status == status
    assert found.text.endswith(text)
    assert bool(found.remedy) is (status == _machine.FAIL)


def test_port_of_a_server_without_http() -> None:
    with answering(b"220 mail\r\n") as port:
        found = only(_machine.check_port("127.0.0.1", port))
    assert found.status == _machine.FAIL
    assert found.text.endswith("is in use by a program that does not speak plain HTTP")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EACCES, "Permission denied"), "choose a --port of 1024 or more"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot"), "choose an address of this machine"),
        (UnicodeError("label empty"), "choose an address of this machine"),
        (socket.gaierror(-2, "Name or service not known"), "choose an address of this machine"),
    ],
)
def test_a_port_that_cannot_be_had(
    error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_server", refuse)
    found = only(_machine.check_port("::1", 80))
    assert (found.status, found.text.startswith("[::1]:80 is not available: ")) == (
        _machine.FAIL,
        True,
    )
    assert remedy in found.remedy


# The clock.


def test_a_clock_before_the_program_is_wrong() -> None:
    assert only(_machine.check_clock(0.0)).status == _machine.FAIL


@pytest.mark.parametrize(
    ("synchronized", "status"), [(True, _machine.OK), (None, _machine.OK), (False, _machine.WARN)]
)
def test_a_clock_that_nothing_keeps_right(
    synchronized: bool | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_machine, "is_synchronized", lambda: synchronized)
    assert only(_machine.check_clock()).status == status


@pytest.mark.parametrize(("state", "known"), [(0, True), (5, False), (-1, None)])
def test_the_kernel_is_asked_for_its_clock(
    state: int, known: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def adjtimex(self, buffer: object) -> int:
            return state

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert _machine.is_synchronized() is known
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert _machine.is_synchronized() is None


# TLS.


def test_missing_or_unreadable_certificates_fail(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    assert list(_machine.check_tls("", "")) == []
    assert only(_machine.check_tls("", "key")).status == _machine.FAIL
    assert only(_machine.check_tls("nix", "")).status == _machine.FAIL
    file = tmp_path / "cert.pem"
    leaf = trustme.CA().issue_cert("localhost")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(file))
    file.chmod(0o600)
    assert only(_machine.check_tls(str(file), "")).status == _machine.OK
    file.chmod(0o644)
    assert {found.status for found in _machine.check_tls(str(file), "")} == {_machine.WARN}


# Java and libraries.


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nothing", None),
    ],
)
def test_versions_of_java(text: str, version: int | None) -> None:
    assert _machine.java_version(text) == version


def fake_java(directory: Path, text: str) -> None:
    save(directory / "bin" / "java", f"#!/bin/sh\necho '{text}' >&2\n", 0o755)


@pytest.mark.parametrize(
    ("text", "status", "expected"),
    [
        ('openjdk version "17.0.9"', _machine.OK, "is Java 17"),
        ('java version "1.8.0_1"', _machine.WARN, "is Java 8: too old for Spark"),
        ("what?", _machine.WARN, "does not report its version"),
        (None, _machine.WARN, "does not run"),
    ],
)
def test_the_version_of_java_is_judged(
    text: str | None, status: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*arguments: object, **more: object) -> None:
        raise subprocess.TimeoutExpired("java", 1)

    fake_java(tmp_path, text or "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if text is None:
        monkeypatch.setattr(subprocess, "run", hang)
    found = only(_machine.check_java())
    assert (found.status, found.text) == (status, f"{tmp_path}/bin/java {expected}")


def test_missing_java_is_reported_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert only(_machine.check_java()).text == (
        f"no Java in JAVA_HOME={tmp_path}: the Spark analysis is not available"
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        only(_machine.check_java()).text
        == "no Java on the PATH: the Spark analysis is not available"
    )


def test_optional_libraries_are_reported_with_their_purpose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else name)
    found = {each.name: each for each in _machine.check_libraries()}
    assert found["rich"].status == _machine.WARN
    assert found["rich"].remedy == "if you want it: pip install rich"
    assert found["lark"] == _machine.Finding(_machine.OK, "lark", "selectors")


# The disk.


def test_without_a_data_directory_nothing_survives() -> None:
    found = only(_disk.check_data_directory(""))
    assert (found.status, "nothing survives" in found.text) == (_machine.OK, True)


def test_a_directory_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = only(_disk.check_data_directory(str(tmp_path / "a" / "b")))
    assert (found.status, found.text) == (
        _machine.FAIL,
        f"{tmp_path} cannot be written to by this user",
    )


def test_a_directory_is_looked_at_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_disk, "file_system", lambda path: "tmpfs")
    found = list(_disk.check_data_directory(str(tmp_path)))
    assert [each.name for each in found] == ["data", "space", "disk", "sync"]
    assert found[0].text == f"{tmp_path} is there"
    assert found[2].status == _machine.WARN


@pytest.mark.parametrize(
    ("free", "status", "text"),
    [
        (5 << 30, _machine.OK, "5.0 GiB free"),
        (1 << 29, _machine.WARN, "512 MiB free: less than 1 GiB"),
        (1 << 20, _machine.FAIL, "1 MiB free: less than 64 MiB"),
        (0, _machine.FAIL, "0 MiB free"),
    ],
)
def test_free_space_is_judged(free: int, status: str, text: str) -> None:
    found = _disk.check_space("d", free)
    assert found.status == status
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    ("kind", "word"), [("tmpfs", "in memory"), ("nfs4", "network"), ("ext4", None), ("", None)]
)
def test_kinds_of_disk(kind: str, word: str | None) -> None:
    found = _disk.check_kind("d", kind)
    assert (found is None) if word is None else (found is not None and word in found.text)


def test_the_nearest_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    inside = tmp_path / "a b" / "data"
    inside.mkdir(parents=True)
    place = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        f"x / ext4 rw\nx {place} xfs rw\nx {place} tmpfs rw\nx {tmp_path}/a nfs rw\nodd\n"
    )
    assert _disk.file_system(inside, str(mounts)) == "tmpfs"
    assert _disk.file_system(tmp_path, str(mounts)) == "ext4"
    assert _disk.file_system(tmp_path, str(tmp_path / "none")) == ""


class Clock:
    """A clock on which each sync takes a given time."""

    def __init__(self, taken_s: float) -> None:
        self.now = 0.0
        self.taken_s = taken_s

    def __call__(self) -> float:
        self.now += self.taken_s
        return self.now


@pytest.mark.parametrize(
    ("taken_s", "status", "word"),
    [
        (0.001, _machine.OK, "1.00 ms"),
        (0.05, _machine.WARN, "waits this long"),
        (1e-6, _machine.WARN, "implausibly fast"),
    ],
)
def test_slow_and_implausibly_fast_syncs_are_warnings(
    taken_s: float, status: str, word: str, tmp_path: Path
) -> None:
    found = _disk.check_sync(tmp_path, Clock(taken_s))
    assert found.status == status
    assert word in found.text
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    found = _disk.check_sync(tmp_path)
    assert (found.status, found.text) == (
        _machine.FAIL,
        f"{tmp_path} cannot be written to: Input/output error",
    )
    assert list(tmp_path.iterdir()) == []
