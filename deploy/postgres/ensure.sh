#!/usr/bin/env bash
# Finds the programs of a Postgres server, version 15 or later, and prints their folder on stdout (and nothing else there).
# As root on a Debian-like system it installs them when they are missing: the programs only, no cluster and no running service.
set -euo pipefail

least=15

say() { printf 'postgres: %s\n' "$*" >&2; }

# usable DIR: DIR has initdb and a postgres of a version we take.
usable() {
  [[ -x $1/postgres && -x $1/initdb ]] || return 1
  local major
  major=$("$1/postgres" --version 2>/dev/null | sed -n 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/p')
  [[ -n $major && $major -ge $least ]]
}

find_bin() {
  local on_path dir
  if on_path=$(command -v postgres); then
    dir=$(dirname "$(readlink -f "$on_path")")
    if usable "$dir"; then
      echo "$dir"
      return
    fi
  fi
  # The newest version first.
  while read -r dir; do
    if usable "$dir"; then
      echo "$dir"
      return
    fi
  done < <(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/pgsql/bin | sort -rV)
  return 1
}

if find_bin; then exit 0; fi

hint="install Postgres $least or later, on Debian with 'apt-get install postgresql', or put its bin folder on PATH"
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
  say "no server of version $least or later found; $hint"
  exit 1
fi

say "no server of version $least or later found, installing it with apt"
export DEBIAN_FRONTEND=noninteractive
apt-get update >&2
package=postgresql
for candidate in 17 16 15; do
  if apt-cache show "postgresql-$candidate" >/dev/null 2>&1; then
    package=postgresql-$candidate
    break
  fi
done
# Debian makes and starts a cluster when the package is installed, unless this file forbids it. It comes with
# postgresql-common, so that is installed first.
apt-get install -y --no-install-recommends postgresql-common >&2
conf=/etc/postgresql-common/createcluster.conf
if [[ -f $conf ]] && ! grep -q '^create_main_cluster *= *false' "$conf"; then
  say "telling postgresql-common to create no cluster of its own ($conf)"
  sed -i 's/^#* *create_main_cluster *=.*/create_main_cluster = false/' "$conf"
  grep -q '^create_main_cluster *= *false' "$conf" || echo 'create_main_cluster = false' >>"$conf"
fi
apt-get install -y --no-install-recommends "$package" >&2

if find_bin; then exit 0; fi
say "apt installed $package, but no server of version $least or later was found after it; $hint"
exit 1
