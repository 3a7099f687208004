#!/usr/bin/env bash
# docs/TLS_WALKTHROUGH.md as commands: five silos and two servers, one process each, over mutual TLS on this machine.
# Usage: examples/tls_walkthrough.sh [DIRECTORY]   (SECSV=path/to/secsv, PROTOCOL=blindsv|secsv|hesv|secretsv)
set -euo pipefail

secsv=$(realpath "${SECSV:-target/release/secsv}")
protocol=${PROTOCOL:-blindsv}
work=${1:-}
started=()
[ -n "$work" ] || { work=$(mktemp -d); made=$work; }
finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  [ -z "${made:-}" ] || rm -rf "$made"
}
trap finish EXIT
mkdir -p "$work"
cd "$work"

step() { printf '\n-- %s\n' "$*"; }
# A port on which nobody listens now.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}
# Waits until somebody listens on a port.
await_port() {
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
    sleep 0.1
  done
  echo "nobody listens on port $1" >&2
  return 1
}
# Starts a party in the background: its log goes to NAME.log, what it prints to NAME.out.
start() {
  local name=$1
  shift
  "$secsv" "$@" >"$name.out" 2>"$name.log" &
  started+=($!)
}

step "a federation that was trained"
"$secsv" train --dataset breast-cancer --model logistic --clients 5 --rounds 2 --seed 0 --out run >/dev/null 2>&1
clients=$(sed -n 's/^id = "\(.*\)"$/\1/p' run/federation.toml)

step "each site makes its keys and hands in a request"
mkdir -p requests
for party in principal auxiliary $clients; do
  "$secsv" keygen --id "$party" --out "sites/$party/kit"
  cp "sites/$party/kit/$party.request.toml" requests/
done

step "one of them signs the requests into kits"
principal_port=$(free_port)
auxiliary_port=$(free_port)
while [ "$auxiliary_port" = "$principal_port" ]; do auxiliary_port=$(free_port); done
"$secsv" provision run/federation.toml --requests requests --protocol "$protocol" --servers-did-not-aggregate \
  --principal "localhost:$principal_port" --auxiliary "localhost:$auxiliary_port" --out kits
for party in principal auxiliary $clients; do cp kits/"$party"/* "sites/$party/kit/"; done

step "each silo holds its own part of the run directory"
for client in $clients; do
  mkdir -p "sites/$client/data/clients"
  cp -r run/federation.toml run/initial.safetensors run/global "sites/$client/data/"
  cp -r "run/clients/$client" "sites/$client/data/clients/"
done

step "the servers start"
start principal principal sites/principal/kit --state sites/principal/state --json result.json --report report.html
await_port "$principal_port"
start auxiliary auxiliary sites/auxiliary/kit --state sites/auxiliary/state
await_port "$auxiliary_port"

step "a silo is told what others can do with its samples and models"
first=${clients%%$'\n'*}
told() { "$secsv" preflight "sites/$1/kit" 2>&1 || true; }
# Whoever answers for the data reads this, and gives the word at its end if they accept it.
told "$first"
accepted() { told "$1" | sed -n 's/.*--accept-exposure //p'; }

step "it looks whether it could take part"
"$secsv" preflight "sites/$first/kit" --state "sites/$first/state" \
  --data "sites/$first/data" --accept-exposure "$(accepted "$first")"

step "the silos start"
for client in $clients; do
  start "$client" client "sites/$client/kit" --data "sites/$client/data" --state "sites/$client/state" \
    --accept-exposure "$(accepted "$client")"
done

step "everybody ends with the values"
for pid in "${started[@]}"; do
  wait "$pid" || { echo "a party failed:" >&2; tail -n 3 ./*.log >&2; exit 1; }
done
started=()
cat principal.out
cat "$first.out"

step "what the parties wrote down fits together"
"$secsv" verify sites/*/state

step "the values are those of one process, bit for bit"
"$secsv" evaluate run --protocol "$protocol" --json alone.json >/dev/null 2>&1
values() { grep -o '"fsv":{[^}]*}' "$1"; }
[ "$(values result.json)" = "$(values alone.json)" ] || { echo "the values differ" >&2; exit 1; }
values result.json
[ -s report.html ]
