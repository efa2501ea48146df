#!/usr/bin/env bash
# The main job with curl on the flat routes: three services, two integrations, a replication flow from a Kafka 3.9 to a
# Kafka 4.3 cluster; then read, update, disable, enable, delete.
#
#   API     base URL of mirrorflow-api          TOKEN   bearer token, when the API wants one
#   SOURCE  bootstrap server of the source      TARGET  bootstrap server of the target
#   DEV     path of mirrorflow-dev, which produces records and compares topics
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=lib.sh
source ./lib.sh
source=${SOURCE:?set SOURCE to the bootstrap server of the source}
target=${TARGET:?set TARGET to the bootstrap server of the target}
dev=$(command -v "${DEV:?set DEV to the absolute path of mirrorflow-dev (make build puts it into bin/)}") || die "there is no program $DEV"
# A topic of its own for each run, so that the script can run again on the same clusters.
topic=inventory-$(printf '%05d' $((RANDOM)))$$

say "1. Three services: the source, the target, and the MirrorMaker that will run the flow"
call POST /services "{\"engine\":\"kafka\",\"description\":\"source, Kafka 3.9\",\"bootstrapServers\":[\"$source\"],\"security\":{\"protocol\":\"PLAINTEXT\"}}"
want 201
source_service=$(first_field id) alias=$(first_field alias)
note "connection checked: Kafka $(first_field version), alias $alias (remote topics will be named $alias.<topic>)"
call POST /services "{\"engine\":\"kafka\",\"description\":\"target, Kafka 4.3\",\"bootstrapServers\":[\"$target\"],\"security\":{\"protocol\":\"PLAINTEXT\"}}"
want 201
target_service=$(first_field id)
note "connection checked: Kafka $(first_field version)"
call POST /services '{"engine":"kafkaMirrorMaker","description":"guide"}'
want 201
mirrormaker=$(first_field id)
prove "services registered, connections checked" "3"

say "2. Two integrations bind the clusters to the MirrorMaker service"
call POST /integrations "{\"type\":\"kafkaMirrorMaker\",\"sourceServiceId\":\"$source_service\",\"destinationServiceId\":\"$mirrormaker\"}"
want 201
source_integration=$(first_field id)
call POST /integrations "{\"type\":\"kafkaMirrorMaker\",\"sourceServiceId\":\"$target_service\",\"destinationServiceId\":\"$mirrormaker\"}"
want 201
target_integration=$(first_field id)
prove "integrations" "2"

say "3. Real records on the source, and a consumer group that stopped in the middle"
"$dev" produce --bootstrap "$source" --topic "$topic" --partitions 3 --records 10000
"$dev" commit --bootstrap "$source" --topic "$topic" --group "$topic-readers" --at 1234

say "4. The replication flow"
begin=$(date +%s%N)
call POST /replications "{\"sourceIntegration\":\"$source_integration\",\"targetIntegration\":\"$target_integration\",\"topics\":[\"$topic\"],\"syncGroupOffsets\":true,\"syncInterval\":1,\"emitHeartbeats\":true,\"enabled\":true}"
want 201
flow=$(first_field id)
"$dev" wait --bootstrap "$target" --topic "$alias.$topic" --records 1 --timeout 30s >/dev/null
first_ms=$((($(date +%s%N) - begin) / 1000000))
note "first record on the target $first_ms ms after POST /replications"
prove "first record on the target after POST" "$first_ms ms"

say "5. Wait for the copy, then compare record by record"
"$dev" wait --bootstrap "$target" --topic "$alias.$topic" --records 10000 --timeout 60s
compared=$("$dev" compare --source "$source" --target "$target" --topic "$topic" --remote "$alias.$topic")
note "$compared"
prove "records equal (key, value, headers, timestamp, order)" "10000"

say "6. Where will my consumers start after a switch?"
group_synced() { "$dev" group --bootstrap "$target" --group "$topic-readers" --topic "$alias.$topic" --expect 1234 >/dev/null 2>&1; }
wait_until 30 "group offsets on the target" group_synced
"$dev" group --bootstrap "$target" --group "$topic-readers" --topic "$alias.$topic" --expect 1234
prove "group resumes at its next record on the target" "exact"

say "7. MirrorMaker 2's topics on the target"
"$dev" topics --bootstrap "$target" --expect heartbeats,"$alias.checkpoints.internal","mm2-offset-syncs.$alias.internal" | sed 's/^/   /'
prove "heartbeats, checkpoints, offset-syncs as MM2 names them" "yes"

say "8. Read it, and its status"
call GET "/replications/$flow"
want 200
note "$body"
is_running() { call GET "/replications/$flow/status" >/dev/null && [[ $(first_field state) == RUNNING && $(field recordLag) == 0 ]]; }
wait_until 30 "state RUNNING, record lag 0" is_running
prove "status says RUNNING, record lag 0" "yes"

say "9. Update: another sync interval and the topic of tomorrow"
call PUT "/replications/$flow" "{\"sourceIntegration\":\"$source_integration\",\"targetIntegration\":\"$target_integration\",\"topics\":[\"$topic\",\"$topic-tomorrow\"],\"syncGroupOffsets\":true,\"syncInterval\":5,\"emitHeartbeats\":true,\"enabled\":true}"
want 200
[[ $(first_field syncInterval) == 5 ]] || die "the update did not take: $body"
"$dev" produce --bootstrap "$source" --topic "$topic-tomorrow" --partitions 1 --records 500
"$dev" wait --bootstrap "$target" --topic "$alias.$topic-tomorrow" --records 500 --timeout 60s
"$dev" compare --source "$source" --target "$target" --topic "$topic-tomorrow" --remote "$alias.$topic-tomorrow"
prove "update applied, a topic made later mirrored from its first record" "500"

say "10. Disable: nothing is written any more"
call PATCH "/replications/$flow" '{"enabled":false}'
want 200
is_stopped() { call GET "/replications/$flow/status" >/dev/null && [[ $(first_field state) == STOPPED ]]; }
wait_until 15 "state STOPPED" is_stopped
"$dev" produce --bootstrap "$source" --topic "$topic" --partitions 3 --records 1000
sleep 2
held=$("$dev" count --bootstrap "$target" --topic "$alias.$topic")
[[ $held == 10000 ]] || die "a disabled flow wrote: $held records on the target"
prove "disabled: records written meanwhile" "0"

say "11. Enable: it goes on where it was"
call PATCH "/replications/$flow" '{"enabled":true}'
want 200
"$dev" wait --bootstrap "$target" --topic "$alias.$topic" --records 11000 --timeout 60s
"$dev" compare --source "$source" --target "$target" --topic "$topic" --remote "$alias.$topic"
prove "enabled again: nothing missing, nothing twice" "11000"

say "12. What is in use cannot be deleted; then delete in order"
call DELETE "/integrations/$source_integration"
want 409
note "$body"
call DELETE "/replications/$flow"
want 204
call DELETE "/integrations/$source_integration"
want 204
call DELETE "/integrations/$target_integration"
want 204
for s in $source_service $target_service $mirrormaker; do
  call DELETE "/services/$s"
  want 204
done
call GET "/replications/$flow"
want 404
prove "deleted; the copies stay on the target" "yes"

table
