# Sourced by run.sh and demo.sh: processes in the background that end in reverse order of their start.
#
# Each has a session of its own, so that a Ctrl-C at the terminal, which reaches the whole foreground group, reaches the
# script alone: Postgres must outlive the worker, and a worker's second signal ends it at once.
# shellcheck shell=bash
names=() pids=() waited_for=

# start NAME COMMAND...: in the background.
start() {
  local name=$1
  shift
  setsid "$@" &
  names+=("$name")
  pids+=($!)
}

# ended: prints the name of a process that has ended; fails when all run.
ended() {
  local i
  for i in "${!pids[@]}"; do
    kill -0 "${pids[i]}" 2>/dev/null || { printf '%s\n' "${names[i]}"; return 0; }
  done
  return 1
}

# stop_all: the last comes first, so that the worker gives its leases back while Postgres is still there. A signal
# meanwhile is passed on to the process that is waited for, and ends that one at once; the others still end in order.
stop_all() {
  trap '[[ -z $waited_for ]] || kill "$waited_for" 2>/dev/null || true' INT TERM HUP
  local i
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    waited_for=${pids[i]}
    kill "$waited_for" 2>/dev/null || true
    # wait comes back at a signal, too.
    while kill -0 "$waited_for" 2>/dev/null; do wait "$waited_for" 2>/dev/null || true; done
  done
  waited_for=
}

# listens PID ADDRESS: whether this very process accepts connections at the port. That something answers there says nothing:
# it may be another instance.
listens() {
  local port inodes
  printf -v port '%04X' "$((10#${2##*:}))"
  inodes=$(readlink "/proc/$1"/fd/* 2>/dev/null | sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' ')
  # Columns: 2 local address, 4 state (0A listens), 10 inode.
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port=":$port" -v inodes="$inodes" '
    BEGIN { n = split(inodes, list, " "); for (i = 1; i <= n; i++) ours[list[i]] = 1 }
    $4 == "0A" && ($10 in ours) && substr($2, length($2) - 4) == port { found = 1 }
    END { exit !found }'
}
