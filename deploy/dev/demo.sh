#!/usr/bin/env bash
# The main job on real clusters, from nothing: Postgres, Kafka 3.9 (source), Kafka 4.3 (target), the API and a worker, all
# on loopback and free ports; then the guide scripts. KEEP=1 leaves everything running. Called by `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/mirrorflow-demo.XXXXXX")
chmod 755 "$work"

# shellcheck source=children.sh
source deploy/dev/children.sh

stop() {
  local status=$?
  trap - EXIT
  if [[ $status -ne 0 && $status -ne 129 && $status -ne 130 && $status -ne 143 ]]; then
    local log
    for log in "$work"/*.log; do
      printf '\n---- last lines of %s ----\n' "$(basename "$log")" >&2
      tail -n 15 "$log" >&2
    done
  elif [[ ${KEEP:-} == 1 ]]; then
    printf '\nStill running (KEEP=1):\n  API      %s\n  source   %s\n  target   %s\n  metrics  %s/metrics (worker)\n  database %s\n  logs     %s\n  to stop  kill %s; rm -r %s\n' \
      "$API" "$SOURCE" "$TARGET" "http://127.0.0.1:$worker_port" "$MIRRORFLOW_DATABASE_URL" "$work" "${pids[*]}" "$work"
    exit 0
  fi
  stop_all
  rm -rf "$work"
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# logged NAME COMMAND...: in the background, output to a log.
logged() {
  local name=$1
  shift
  # With KEEP=1 it outlives this script and its terminal: it has a session of its own, and no output to the terminal.
  start "$name" "$@" >"$work/$name.log" 2>&1
}

# ready NAME SECONDS COMMAND...: waits until the command succeeds; fails at once when a process has ended.
ready() {
  local name=$1 limit=$2 begin=$SECONDS i
  shift 2
  until "$@" >/dev/null 2>&1; do
    if i=$(ended); then
      echo "$i has ended" >&2
      exit 1
    fi
    ((SECONDS - begin < limit)) || { echo "$name: not ready within $limit s" >&2; exit 1; }
    [[ -t 1 ]] && printf '\r   waiting for %s (%d s)   ' "$name" $((SECONDS - begin))
    sleep 0.2
  done
  [[ -t 1 ]] && printf '\r'
  printf '   %s is ready after %d s          \n' "$name" $((SECONDS - begin))
}

read -r -d '' pg_port src_port tgt_port api_port worker_port < <(bin/mirrorflow-dev free-port 5 | tr '\n' ' ') || true
export SOURCE=127.0.0.1:$src_port TARGET=127.0.0.1:$tgt_port API=http://127.0.0.1:$api_port DEV=$PWD/bin/mirrorflow-dev

echo "== Starting Postgres, Kafka 3.9 (source, $SOURCE), Kafka 4.3 (target, $TARGET), the API ($API) and a worker"
logged postgres bin/mirrorflow-dev postgres --dir "$work/postgres" --port "$pg_port"
logged source bin/mirrorflow-dev kafka --version 3.9 --dir "$work/source" --port "$src_port"
logged target bin/mirrorflow-dev kafka --version 4.3 --dir "$work/target" --port "$tgt_port"

mkdir "$work/keys"
bin/mirrorctl keys new --public "$work/keys/public" --private "$work/keys/private"
export MIRRORFLOW_DATABASE_URL="postgres://postgres@127.0.0.1:$pg_port/postgres?sslmode=disable"
export MIRRORFLOW_AUTH=none MIRRORFLOW_LISTEN=127.0.0.1:$api_port MIRRORFLOW_WORKER_LISTEN=127.0.0.1:$worker_port
export MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE=$work/keys/public MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE=$work/keys/private

ready "Postgres" 60 bin/mirrorctl migrate
logged api bin/mirrorflow-api
logged worker bin/mirrorflow-worker
ready "the API" 30 curl -fsS "$API/readyz"
ready "the worker" 30 curl -fsS "http://127.0.0.1:$worker_port/readyz"
ready "Kafka 3.9" 60 "$DEV" topics --bootstrap "$SOURCE"
ready "Kafka 4.3" 60 "$DEV" topics --bootstrap "$TARGET"

examples/guide.sh
printf '\n== The same on the OVHcloud-shaped routes\n'
examples/guide-ovh.sh
