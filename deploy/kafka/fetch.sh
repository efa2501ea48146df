#!/usr/bin/env bash
# Downloads the jars of real Kafka brokers (and tools, and MirrorMaker 2) with Maven into a cache, for tests and the demo.
#
#   fetch.sh [3.9] [4.3]        default: both
#
# stdout: one folder of jars per version asked for, in that order. stderr: progress.
# MIRRORFLOW_CACHE names the cache (default ~/.cache/mirrorflow). A cached version costs milliseconds; a changed pom is
# fetched anew. Runs at the same time wait for each other, and a broken download leaves nothing behind.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MIRRORFLOW_CACHE:-${HOME:?HOME is not set; set MIRRORFLOW_CACHE to a folder}/.cache/mirrorflow}/kafka

say() { printf 'kafka jars: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

need_tools() {
  command -v mvn >/dev/null || die "Maven (mvn) is missing: install it, on Debian with 'apt-get install maven'"
  command -v java >/dev/null || die "Java is missing: install Java 17 or later, on Debian with 'apt-get install openjdk-17-jre-headless'"
  local major
  major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [[ -n $major && $major -ge 17 ]] || die "Java 17 or later is needed, 'java -version' says ${major:-nothing known}"
}

# fresh DIR SUM: DIR holds a complete download made from the pom with checksum SUM.
fresh() { [[ -d $1/libs && -f $1/pom.sha256 && $(<"$1/pom.sha256") == "$2" ]]; }

# A reaper for the half-made folder of an interrupted run; set while one exists.
tmp=
trap '[[ -z $tmp ]] || rm -rf "$tmp"' EXIT

fetch() {
  local pom=$here/$1/pom.xml version sum dir
  [[ -f $pom ]] || die "no pom for version '$1'; known: $(cd "$here" && echo [0-9]*)"
  version=$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$pom")
  [[ -n $version ]] || die "$pom names no kafka.version"
  sum=$(sha256sum <"$pom" | cut -d ' ' -f 1)
  dir=$cache/$version
  if fresh "$dir" "$sum"; then
    echo "$dir/libs"
    return
  fi
  need_tools
  mkdir -p "$cache"
  exec 9>"$cache/$version.lock"
  if ! flock -n 9; then
    say "$version: another run is downloading, waiting for it"
    flock 9
  fi
  if ! fresh "$dir" "$sum"; then
    say "$version: downloading with Maven into $dir"
    tmp=$(mktemp -d "$cache/.fetch-$version-XXXXXX")
    chmod 755 "$tmp"
    if ! mvn -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime \
      -DoutputDirectory="$tmp/libs" 2>&1 | tee "$tmp/mvn.log" | progress "$version"; then
      tail -n 25 "$tmp/mvn.log" >&2
      die "$version: Maven failed; its last lines are above"
    fi
    compgen -G "$tmp/libs/kafka_*-$version.jar" >/dev/null || die "$version: Maven ended well but the broker's jar is not there"
    rm "$tmp/mvn.log"
    echo "$sum" >"$tmp/pom.sha256"
    # The stamp is written last and the folder renamed whole, so that no reader ever sees half of it.
    rm -rf "$dir"
    mv "$tmp" "$dir"
    tmp=
    say "$version: $(find "$dir/libs" -name '*.jar' | wc -l) jars ready"
  fi
  exec 9>&-
  echo "$dir/libs"
}

# progress VERSION: a line for every 25 files that Maven downloads or copies.
progress() {
  awk -v v="$1" '
    /Downloaded from/ { if (++down % 25 == 0) { printf "kafka jars: %s: %d files downloaded\n", v, down > "/dev/stderr" } }
    /Copying /        { if (++copied % 25 == 0) { printf "kafka jars: %s: %d jars in place\n", v, copied > "/dev/stderr" } }
  '
}

[[ $# -gt 0 ]] || set -- 3.9 4.3
for v in "$@"; do fetch "$v"; done
