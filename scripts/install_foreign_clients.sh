#!/usr/bin/env bash
# Installs Debian's STOMP clients for tests/foreign/test_interop.py, if this is Debian and we are root.
# Never fails: missing clients are reported loudly, and their tests are skipped.
set -uo pipefail

readonly LINE='!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!'
# Groups of packages: one that is not available does not affect the others.
readonly GROUPS_OF_PACKAGES=(
    'ruby ruby-stomp'
    'perl libnet-stomp-perl libio-socket-ssl-perl'
    'php-cli php-stomp'
    'libactivemq-java'
)
readonly PATIENCE_S=120

loudly() {
    printf '%s\n%s\n%s\n' "$LINE" "$1" "$LINE" >&2
}

is_there() {
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

install() {
    DEBIAN_FRONTEND=noninteractive timeout "$PATIENCE_S" apt-get \
        -o "DPkg::Lock::Timeout=$PATIENCE_S" -qq install -y --no-install-recommends "$@" >/dev/null
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    loudly 'no apt-get: the clients of other languages were NOT INSTALLED; their tests are skipped'
    exit 0
fi

wanted=()
for group in "${GROUPS_OF_PACKAGES[@]}"; do
    for package in $group; do
        is_there "$package" || { wanted+=("$group"); break; }
    done
done
# Its program is compiled when it runs, by any JDK.
command -v javac >/dev/null || wanted+=('default-jdk-headless')
if ((${#wanted[@]} == 0)); then
    exit 0
fi
if ((EUID != 0)); then
    loudly "not root, so NOT INSTALLED: ${wanted[*]}; the tests with them are skipped"
    exit 0
fi

timeout "$PATIENCE_S" apt-get -qq update || loudly 'apt-get update FAILED'
for group in "${wanted[@]}"; do
    # The words of a group are packages.
    # shellcheck disable=SC2086
    install $group || loudly "NOT INSTALLED: $group; the tests with them are skipped"
done
exit 0
