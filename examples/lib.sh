# Shared by the guide scripts: printing, curl, reading JSON without a JSON tool.
# Needs API (base URL). TOKEN is sent when set.

api=${API:?set API to the base URL, for example http://127.0.0.1:8080}
tab=$(printf '\t')
proved=()
started=$SECONDS

say() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
die() {
  printf '\nFAILED: %s\n' "$*" >&2
  exit 1
}
prove() { proved+=("$1$tab$2"); }

# call METHOD PATH [BODY]: prints what it does and leaves the answer in $body and $status.
call() {
  local args=(-sS -o "$answer" -w '%{http_code}' --max-time 30 -X "$1" -H 'Accept: application/json')
  [[ -n ${TOKEN:-} ]] && args+=(-H "Authorization: Bearer $TOKEN")
  local type=application/json
  [[ $1 == PATCH ]] && type=application/merge-patch+json
  [[ -n ${3:-} ]] && args+=(-H "Content-Type: $type" --data "$3")
  printf '   curl -X %s %s%s\n' "$1" "$2" "${3:+ --data '$3'}"
  status=$(curl "${args[@]}" "$api$2") || die "$1 $2: the API does not answer at $api"
  body=$(cat "$answer")
}

# want STATUS...: the last answer must have one of these.
want() {
  local s
  for s in "$@"; do [[ $status == "$s" ]] && return; done
  die "expected status $*, got $status: $body"
}

# field NAME: the first member of that name in the answer; strings without quotes.
field() {
  printf '%s' "$body" | tr -d '\n' | sed -nE "s/.*[{,][[:space:]]*\"$1\"[[:space:]]*:[[:space:]]*(\"([^\"]*)\"|[^,}]*).*/\1/p" | sed -E 's/^"(.*)"$/\1/'
}
# first_field NAME: like field, but the first one and not the last when the answer nests.
first_field() {
  printf '%s' "$body" | tr -d '\n' | grep -oE "\"$1\"[[:space:]]*:[[:space:]]*(\"[^\"]*\"|[^],}]*)" | head -n 1 | sed -E 's/^"[^"]*"[[:space:]]*:[[:space:]]*//; s/^"(.*)"$/\1/'
}

# wait_until SECONDS TEXT COMMAND...: runs the command until it succeeds, with a progress line.
wait_until() {
  local limit=$1 text=$2 begin=$SECONDS
  shift 2
  until "$@"; do
    if ((SECONDS - begin >= limit)); then
      printf '\n'
      die "$text: not within $limit s"
    fi
    [[ -t 1 ]] && printf '\r   waiting: %s (%d s)   ' "$text" $((SECONDS - begin))
    sleep 0.3
  done
  [[ -t 1 ]] && printf '\r'
  printf '   %s: done after %d s                    \n' "$text" $((SECONDS - begin))
}

table() {
  printf '\n%s\n' "What was proved ($((SECONDS - started)) s):"
  local row
  for row in "${proved[@]}"; do printf '  %-68s %s\n' "${row%%"$tab"*}" "${row#*"$tab"}"; done
}

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
