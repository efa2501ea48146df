#!/usr/bin/env bash
# The guide's requests in the guide's order on the OVHcloud-shaped routes. Kafka clusters are registered on the flat
# routes, since OVHcloud's bodies have no place for addresses. Needs the variables of guide.sh; PROJECT is the project's
# name (default: default).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=lib.sh
source ./lib.sh
source=${SOURCE:?set SOURCE to the bootstrap server of the source}
target=${TARGET:?set TARGET to the bootstrap server of the target}
dev=$(command -v "${DEV:?set DEV to the absolute path of mirrorflow-dev (make build puts it into bin/)}") || die "there is no program $DEV"
base=/1.0/cloud/project/${PROJECT:-default}/database/kafkaMirrorMaker
topic=inventory-ovh-$(printf '%05d' $((RANDOM)))$$

say "0. Two Kafka services (flat routes), and a kafkaMirrorMaker service"
call POST /services "{\"engine\":\"kafka\",\"description\":\"source\",\"bootstrapServers\":[\"$source\"],\"security\":{\"protocol\":\"PLAINTEXT\"}}"
want 201
source_service=$(first_field id) alias=$(first_field alias)
call POST /services "{\"engine\":\"kafka\",\"description\":\"target\",\"bootstrapServers\":[\"$target\"],\"security\":{\"protocol\":\"PLAINTEXT\"}}"
want 201
target_service=$(first_field id)
call POST "$base" '{"description":"guide","plan":"business","version":"3.9","nodesPattern":{"flavor":"db1-4","number":3,"region":"GRA"}}'
want 200
mm=$(first_field id)
call GET "$base/$mm"
want 200
call PUT "$base/$mm" '{"description":"guide, renamed"}'
want 200
prove "kafkaMirrorMaker service created, read, updated" "yes"
"$dev" produce --bootstrap "$source" --topic "$topic" --partitions 2 --records 2000

say "1. Integrations"
call POST "$base/$mm/integration" "{\"type\":\"kafkaMirrorMaker\",\"sourceServiceId\":\"$source_service\",\"destinationServiceId\":\"$mm\"}"
want 200
source_integration=$(first_field id)
call POST "$base/$mm/integration" "{\"type\":\"kafkaMirrorMaker\",\"sourceServiceId\":\"$target_service\",\"destinationServiceId\":\"$mm\"}"
want 200
target_integration=$(first_field id)

say "2. The replication"
call POST "$base/$mm/replication" "{\"sourceIntegration\":\"$source_integration\",\"targetIntegration\":\"$target_integration\",\"topics\":[\"$topic\"],\"syncGroupOffsets\":true,\"syncInterval\":60,\"emitHeartbeats\":true,\"enabled\":true}"
want 200
flow=$(first_field id)
note "$body"
[[ $body == *'"replicationPolicyClass":"org.apache.kafka.connect.mirror.DefaultReplicationPolicy"'* ]] || die "no policy class in the answer"

say "3. The copy"
"$dev" wait --bootstrap "$target" --topic "$alias.$topic" --records 2000 --timeout 60s
"$dev" compare --source "$source" --target "$target" --topic "$topic" --remote "$alias.$topic"
prove "records equal through the OVHcloud-shaped routes" "2000"

say "4. List, read, update, disable, delete"
call GET "$base/$mm/replication"
want 200
[[ $body == "[\"$flow\"]"* ]] || die "the list is not an array of ids: $body"
call PUT "$base/$mm/replication/$flow" '{"enabled":false}'
want 200
call GET "$base/$mm/replication/$flow"
want 200
[[ $(first_field enabled) == false && $(first_field syncInterval) == 60 ]] || die "PUT is partial here: $body"
call GET "$base/$mm/replication/00000000-0000-4000-8000-000000000000"
want 404
note "$body"
call DELETE "$base/$mm/replication/$flow"
want 200
for i in $source_integration $target_integration; do
  call DELETE "$base/$mm/integration/$i"
  want 200
done
call DELETE "$base/$mm"
want 200
for s in $source_service $target_service; do
  call DELETE "/services/$s"
  want 204
done
prove "ids in lists, partial PUT, OVHcloud's error body, deletes" "yes"
table
