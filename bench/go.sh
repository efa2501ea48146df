#!/usr/bin/env bash
# Runs the Go benchmarks of what every batch goes through, briefly, and compares them with the committed baseline.
# Times are printed and never fail: machines differ. What must not allocate, and does, fails.
# BENCH_UPDATE=1 makes the baseline anew. make bench-go has built benchstat before.
set -euo pipefail
cd "$(dirname "$0")/.."
baseline=bench/results/go-baseline.txt
free='Patch Slice Judge Aborted FetchRequest FetchResponse ProduceRequest ProduceResponse'
now=$(mktemp)
trap 'rm -f "$now"' EXIT

go test ./internal/engine/batch ./internal/engine/wire -run '^$' -bench "^Benchmark(Ways|${free// /|})\$" \
  -cpu 1 -benchmem -benchtime 5ms -count 6 >"$now" || { cat "$now"; exit 1; }

if [ -n "${BENCH_UPDATE:-}" ]; then
  cp "$now" "$baseline"
  echo "wrote $baseline"
else
  # Another processor is no reason for another table.
  bin/tools/benchstat -ignore cpu -filter ".unit:(sec/op OR x-pass)" "baseline=$baseline" "now=$now"
fi

awk -v free="$free" '
  function allocs(i) { for (i = 2; i <= NF; i++) if ($i == "allocs/op") return $(i - 1); return -1 }
  BEGIN { n = split(free, names, " "); for (i = 1; i <= n; i++) wanted[names[i]] = 1; wanted["Ways"] = 1 }
  /^Benchmark/ {
    name = $1; sub(/^Benchmark/, "", name);
    top = name; sub(/\/.*/, "", top)
    if (!(top in wanted) || top == "Ways" && name !~ /\/pass(-crc)?$/) next
    seen[top]++
    if (allocs() != 0) { printf "%s allocates: %s\n", name, $0; bad = 1 }
  }
  END {
    for (top in wanted) if (!seen[top]) { printf "no benchmark named %s\n", top; bad = 1 }
    if (bad) exit 1
    print "nothing that every batch goes through allocates"
  }' "$now"
