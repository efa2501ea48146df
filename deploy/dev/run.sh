#!/usr/bin/env bash
# Postgres (private, kept in .mirrorflow/), the API without authentication on loopback, and one worker, in the foreground.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
data=${MIRRORFLOW_DATA:-$PWD/.mirrorflow}
mkdir -p "$data"
data=$(cd "$data" && pwd)

pids=()
stop() {
  trap - EXIT INT TERM
  # In reverse order: the worker gives its leases back while Postgres is still there.
  local i
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

exec 8>"$data/run.lock"
flock -n 8 || { echo "make run already runs with the data in $data (MIRRORFLOW_DATA names another folder)" >&2; exit 1; }
read -r free_port _ < <(bin/mirrorflow-dev free-port 1)
port=${MIRRORFLOW_POSTGRES_PORT:-$free_port}
bin/mirrorflow-dev postgres --dir "$data/postgres" --port "$port" >"$data/postgres.log" 2>&1 &
pids+=($!)
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
bin/mirrorflow-api &
pids+=($!)
bin/mirrorflow-worker &
pids+=($!)
for ((i = 0; ; i++)); do
  curl -fsS "http://$MIRRORFLOW_LISTEN/readyz" >/dev/null 2>&1 && break
  for p in "${pids[@]}"; do
    kill -0 "$p" 2>/dev/null || {
      echo "the API or the worker did not start; is $MIRRORFLOW_LISTEN (MIRRORFLOW_LISTEN) or $MIRRORFLOW_WORKER_LISTEN (MIRRORFLOW_WORKER_LISTEN) in use?" >&2
      exit 1
    }
  done
  ((i < 150)) || { echo "the API is not ready at $MIRRORFLOW_LISTEN" >&2; exit 1; }
  sleep 0.2
done
echo "mirrorflow listens on http://$MIRRORFLOW_LISTEN (data in $data; stop with Ctrl-C)"
echo "for mirrorctl: export MIRRORFLOW_DATABASE_URL='$MIRRORFLOW_DATABASE_URL'"
# Whichever ends first ends the whole.
wait -n "${pids[@]}"
