"""Packaging of the broker: unit files, the image, the one-file program, the wheels."""

import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from _crash.ports import free_port

from tests.support.tls import authority

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
PATIENCE_S = 120


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        command,
        **{"timeout": PATIENCE_S, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there: the unit files are NOT verified")
    for name in ("trio-stomp.service", "trio-stomp.socket"):
        text = (CONF / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(
            text.replace("/opt/trio-stomp/.venv/bin/python", sys.executable)
        )
    files = [str(tmp_path / "trio-stomp.service"), str(tmp_path / "trio-stomp.socket")]
    result = run("systemd-analyze", "verify", "--man=no", *files)
    about_ours = [line for line in result.stderr.splitlines() if "trio-stomp" in line]
    assert about_ours == []
    assert result.returncode == 0, result.stderr


def test_a_linter_finds_nothing_wrong_with_the_dockerfile() -> None:
    linter = shutil.which(
        "hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if linter is None:
        pytest.skip("hadolint is not there: the Dockerfile is NOT linted")
    result = run(linter, str(CONF / "Dockerfile"))
    assert (result.returncode, result.stdout) == (0, "")


def test_a_cluster_on_kubernetes_or_compose_is_valid_and_its_options_exist(tmp_path: Path) -> None:
    import kubernetes_validate  # type: ignore[import-untyped]
    import yaml  # type: ignore[import-untyped]

    passwords = tmp_path / "users"
    passwords.write_text("")
    compose = yaml.safe_load((CONF / "cluster-compose.yml").read_text(encoding="utf-8"))
    text = (CONF / "cluster-kubernetes.yaml").read_text(encoding="utf-8")
    manifests = list(yaml.safe_load_all(text))
    for each in manifests:
        kubernetes_validate.validate(each, "1.30", strict=True)
    commands = [each["command"] for each in compose["services"].values()]
    for each in manifests:
        if each["kind"] == "StatefulSet":
            commands += [one["args"] for one in each["spec"]["template"]["spec"]["containers"]]
    nodes = [command for command in commands if any("--node" in word for word in command)]
    assert (len(nodes), len(commands)) == (4, 8)
    for command in nodes:
        words = [word.replace("/run/secrets/stomp/users", str(passwords)) for word in command]
        result = run(sys.executable, "-m", "trio_stomp", "config", "check", *words)
        assert result.returncode == 0, result.stderr
    server = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert server is not None
    configurations = [(CONF / "nats-cluster.conf").read_text(encoding="utf-8")]
    configurations += [
        each["data"]["nats.conf"] for each in manifests if each["kind"] == "ConfigMap"
    ]
    for number, configuration in enumerate(configurations):
        path = tmp_path / f"{number}.conf"
        path.write_text(configuration)
        checked = run(server, "-t", "-c", str(path))
        assert (checked.returncode, "sync_interval: always" in configuration) == (0, True)


def test_one_broker_on_kubernetes_or_compose_is_valid_and_its_options_exist(tmp_path: Path) -> None:
    import kubernetes_validate
    import yaml

    compose = yaml.safe_load((CONF / "compose.yml").read_text(encoding="utf-8"))
    manifests = list(yaml.safe_load_all((CONF / "kubernetes.yaml").read_text(encoding="utf-8")))
    for each in manifests:
        kubernetes_validate.validate(each, "1.30", strict=True)
    (pod,) = (each["spec"]["template"]["spec"] for each in manifests if "replicas" in each["spec"])
    (container,) = pod["containers"]
    broker = compose["services"]["broker"]
    starts = (
        (container["args"], {each["name"]: each["value"] for each in container["env"]}),
        (broker["command"], broker["environment"]),
    )
    rules = tmp_path / "acl.toml"
    rules.write_text(compose["configs"]["acl"]["content"])
    users = tmp_path / "users"
    users.write_text("prometheus:secret\n")
    places = {"/run/secrets/stomp/users": users, "/run/secrets/users": users}
    places["/etc/trio-stomp/acl.toml"] = rules
    for command, variables in starts:
        words = " ".join(command)
        for inside, here in places.items():
            words = words.replace(inside, str(here))
        line = (*words.split(), "--host", "0.0.0.0")
        checked = run(
            *(sys.executable, "-m", "trio_stomp", "config", "check", *line),
            env={**os.environ, **variables},
        )
        assert checked.returncode == 0, checked.stderr
    may = run(
        *(sys.executable, "-m", "trio_stomp", "acl", "test", "--acl-file", str(rules)),
        *("prometheus", "monitor", "DIAG"),
    )
    assert may.returncode == 0, may.stdout + may.stderr


def test_prometheus_takes_the_configuration_and_the_alerts(tmp_path: Path) -> None:
    import yaml

    compose = yaml.safe_load((CONF / "compose.yml").read_text(encoding="utf-8"))
    text = compose["configs"]["scrape"]["content"]
    password = tmp_path / "password"
    password.write_text("secret")
    alerts = CONF / "prometheus-alerts.yml"
    places = {"/etc/prometheus/alerts.yml": alerts, "/run/secrets/prometheus": password}
    for inside, here in places.items():
        assert inside in text
        text = text.replace(inside, str(here))
    assert yaml.safe_load(text)["scrape_configs"][0]["job_name"] == "trio_stomp"
    assert 'job="trio_stomp"' in alerts.read_text(encoding="utf-8")
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not there (apt install prometheus): the rules are NOT checked")
    file = tmp_path / "prometheus.yml"
    file.write_text(text)
    checked = run(promtool, "check", "config", str(file))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.full
def test_the_steps_of_the_image_make_a_broker_that_its_health_check_finds_well(
    tmp_path: Path,
) -> None:
    """Take the steps of the Dockerfile in an empty directory: this machine may have no Docker."""
    text = (CONF / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    source, root = tmp_path / "src", tmp_path / "root"
    source.mkdir()
    for names, place in re.findall(r"^COPY (?!--from)(.+) (\S+)$", text, re.M):
        for name in names.split():
            target = source / place / (Path(name).name if place.endswith("/") else "")
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
    build, _ = re.findall(r"^RUN (.+)$", text, re.M)
    made = run("sh", "-ec", build.replace("/opt", str(root)), cwd=source, timeout=600)
    assert made.returncode == 0, made.stderr
    health, entry = map(json.loads, re.findall(r"(?:CMD|ENTRYPOINT) (\[.+\])$", text, re.M))
    port = free_port()
    clean = {"PATH": f"{root}/trio-stomp/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    clean["TRIO_STOMP_URL"] = f"stomp://127.0.0.1:{port}"
    command = [str(tmp_path / "data") if word == "/data" else word for word in entry]
    for more in ([], ["--tls-cert", authority().certificate, "--tls=required"]):
        line = [*command, "--port", str(port), "--insecure", *more]
        with subprocess.Popen(line, env=clean, stderr=subprocess.PIPE, text=True) as broker:
            try:
                assert broker.stderr is not None
                while "listening on" not in (written := broker.stderr.readline()):
                    assert written
                asked = run(*health, env=clean)
                assert (asked.returncode, "healthy" in asked.stdout) == (0, True), asked.stdout
            finally:
                broker.terminate()
                broker.communicate(timeout=PATIENCE_S)


def test_the_one_file_program_runs_a_broker(tmp_path: Path) -> None:
    target = tmp_path / "trio-stomp.pyz"
    made = run(sys.executable, str(ROOT / "scripts" / "make_zipapp.py"), str(target))
    assert made.returncode == 0, made.stderr
    # -S -E: it must not use packages installed here.
    output = run(sys.executable, "-S", "-E", str(target), "--version", cwd=tmp_path)
    assert output.stdout.startswith("trio-stomp "), output.stderr
    port = free_port()
    broker = subprocess.Popen(
        [sys.executable, "-S", "-E", str(target), "--port", str(port), "--log-format", "json"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stderr is not None
        first = json.loads(broker.stderr.readline())
        assert f"listening on 127.0.0.1:{port}" in first["message"]
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        broker.terminate()
        broker.communicate(timeout=PATIENCE_S)
    assert broker.returncode == 0


# Loaded when it is needed.
LATE = {
    "argon2",
    "cronsim",
    "cryptography",
    "jwt",
    "lark",
    "msgpack",
    "rich",
    "shtab",
    "sqlalchemy",
}


def test_a_broker_listens_before_it_loads_rarely_used_modules() -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "trio_stomp", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stderr is not None
        loaded = set()
        for line in broker.stderr:
            loaded.add(line.rpartition("|")[2].strip())
            if "listening on" in line:
                break
        broker.terminate()
        broker.stderr.read()
    assert "trio" in loaded
    assert loaded & LATE == set()


def test_an_sdist_can_be_built_from_itself_and_is_the_same(tmp_path: Path) -> None:
    wheels = importlib.import_module("wheels")
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    sdist = wheels.build(ROOT, first, "sdist")
    again = wheels.build(wheels.unpacked(sdist, tmp_path), second, "sdist")
    assert sdist.name == again.name
    assert sdist.read_bytes() == again.read_bytes()


@pytest.mark.full
def test_the_wheels_of_a_release_run_where_nothing_else_is_installed(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: the compiled wheel is NOT built")
    made = run(sys.executable, str(ROOT / "scripts" / "wheels.py"), str(tmp_path), timeout=1200)
    assert made.returncode == 0, made.stderr
    kinds = ("*.tar.gz", "*-manylinux*.whl", "*-py3-none-any.whl")
    (_, _, pure) = files = [file for kind in kinds for file in tmp_path.glob(kind)]
    assert set(files) == set(tmp_path.iterdir())
    uvx = shutil.which("uvx")
    if uvx is not None:
        text = run(uvx, "--from", str(pure), "trio-stomp", "--version", cwd=tmp_path)
        assert text.stdout.startswith("trio-stomp "), text.stderr


def test_the_wheel_has_the_package_and_nothing_else(tmp_path: Path) -> None:
    made = run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(ROOT)
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    package = ROOT / "trio_stomp"
    sources = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    assert sources - set(names) == set()
    assert any(name.startswith("trio_stomp/web/static/") for name in names)
    assert {
        f"trio_stomp/spark/{name}" for name in ("conf/log4j2.properties", "running/stats.ipynb")
    } <= {*names}
    top = {name.split("/")[0].split("-")[0] for name in names}
    assert top == {"trio_stomp", "pyspark_stomp.py"}
    (about,) = (name for name in names if name.endswith("/METADATA"))
    links = re.findall(r"\]\(([^)]+)\)", archive.read(about).decode())
    assert [link for link in links if not link.startswith("https://")] == []
