#!/usr/bin/env bash
# Install the brokers that tests/foreign/test_client_brokers.py runs the client with: Debian's RabbitMQ and
# ActiveMQ. Never fails: missing brokers are reported loudly, and their tests are skipped.
# The services that the packages start are stopped and disabled, because the tests start their own
# brokers. An instance that existed before is left alone.
set -uo pipefail

LINE=$(printf '!%.0s' {1..78})

loudly() {
    printf '%s\n%s\n%s\n' "$LINE" "$*" "$LINE" >&2
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing() {
    for package in rabbitmq-server activemq; do
        installed "$package" || echo "$package"
    done
}

runs_as() { # USER: whether any process is that user's
    getent passwd "$1" >/dev/null && [ -n "$(find /proc -maxdepth 1 -user "$1" 2>/dev/null)" ]
}

quiet() { # SERVICE: not running now, and not started with the machine
    if [ -d /run/systemd/system ]; then
        systemctl disable --now "$1" >/dev/null 2>&1
        return 0
    fi
    # Run needlessly, RabbitMQ's script would leave a port mapper behind.
    if runs_as "${1%-server}"; then "/etc/init.d/$1" stop >/dev/null 2>&1; fi
    update-rc.d "$1" disable >/dev/null 2>&1
    return 0
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    loudly "there is no apt-get: RABBITMQ AND ACTIVEMQ ARE NOT INSTALLED, tests with them are SKIPPED"
    exit 0
fi
mapfile -t wanted < <(missing)
if [ "${#wanted[@]}" -eq 0 ]; then
    echo "rabbitmq-server and activemq are installed"
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    loudly "only root can install ${wanted[*]}: THEY ARE MISSING, tests with them are SKIPPED"
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
started=$SECONDS
had_erlang=""
if installed erlang-base; then had_erlang=1; fi
apt-get update -qq || echo "apt-get update failed; going on with the lists that are there" >&2
for package in "${wanted[@]}"; do
    apt-get install -y -qq --no-install-recommends "$package" </dev/null >/dev/null ||
        echo "apt-get install $package failed" >&2
    if installed "$package"; then
        quiet "$package"
    fi
done
# Erlang's port mapper listens on every address, and is only there for RabbitMQ.
if [ -z "$had_erlang" ] && installed erlang-base; then
    if [ -d /run/systemd/system ]; then
        systemctl disable --now epmd.socket epmd.service >/dev/null 2>&1
    elif runs_as rabbitmq; then
        epmd -kill >/dev/null 2>&1
    fi
fi
mapfile -t wanted < <(missing)
if [ "${#wanted[@]}" -ne 0 ]; then
    loudly "NOT INSTALLED: ${wanted[*]}; tests with them are SKIPPED"
fi
echo "install_other_brokers: $((SECONDS - started)) s"
exit 0
