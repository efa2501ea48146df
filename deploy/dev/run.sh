#!/usr/bin/env bash
# Postgres (private, kept in .mirrorflow/), the API without authentication on loopback, and one worker, in the foreground.
# Ctrl-C ends the worker, the API and Postgres, in this order. Called by `make run`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=children.sh
source deploy/dev/children.sh
data=${MIRRORFLOW_DATA:-$PWD/.mirrorflow}
mkdir -p "$data"
data=$(cd "$data" && pwd)

stop() {
  trap - EXIT
  stop_all
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

exec 8>"$data/run.lock"
flock -n 8 || { echo "make run already runs with the data in $data (MIRRORFLOW_DATA names another folder)" >&2; exit 1; }
read -r free_port _ < <(bin/mirrorflow-dev free-port 1)
port=${MIRRORFLOW_POSTGRES_PORT:-$free_port}
start Postgres bin/mirrorflow-dev postgres --dir "$data/postgres" --port "$port" >"$data/postgres.log" 2>&1
export MIRRORFLOW_DATABASE_URL="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"

if [[ ! -f $data/keys/public ]]; then
  mkdir -p "$data/keys"
  bin/mirrorctl keys new --public "$data/keys/public" --private "$data/keys/private"
fi
export MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE=$data/keys/public MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE=$data/keys/private
export MIRRORFLOW_AUTH=none MIRRORFLOW_LISTEN=${MIRRORFLOW_LISTEN:-127.0.0.1:8080} MIRRORFLOW_WORKER_LISTEN=${MIRRORFLOW_WORKER_LISTEN:-127.0.0.1:8081}

for ((i = 0; ; i++)); do
  bin/mirrorctl migrate >"$data/migrate.log" 2>&1 && break
  kill -0 "${pids[0]}" 2>/dev/null || { cat "$data/postgres.log" >&2; exit 1; }
  ((i < 100)) || { cat "$data/migrate.log" >&2; exit 1; }
  sleep 0.2
done

# await NAME ADDRESS VARIABLE: until the process started last listens at the address and is ready.
await() {
  local i name
  for ((i = 0; ; i++)); do
    if name=$(ended); then
      echo "$name has ended; is $2 ($3) in use?" >&2
      exit 1
    fi
    listens "${pids[-1]}" "$2" && curl -fsS -m 5 "http://$2/readyz" >/dev/null 2>&1 && break
    ((i < 150)) || { echo "$1 is not ready at $2" >&2; exit 1; }
    sleep 0.2
  done
}
start "the API" bin/mirrorflow-api
await "the API" "$MIRRORFLOW_LISTEN" MIRRORFLOW_LISTEN
start "the worker" bin/mirrorflow-worker
await "the worker" "$MIRRORFLOW_WORKER_LISTEN" MIRRORFLOW_WORKER_LISTEN
echo "mirrorflow listens on http://$MIRRORFLOW_LISTEN (metrics of the worker: http://$MIRRORFLOW_WORKER_LISTEN/metrics; data in $data; stop with Ctrl-C)"
echo "for mirrorctl: export MIRRORFLOW_DATABASE_URL='$MIRRORFLOW_DATABASE_URL'"
# Whichever ends first ends the whole.
wait -n "${pids[@]}" || true
echo "$(ended || echo "a process") has ended" >&2
exit 1
