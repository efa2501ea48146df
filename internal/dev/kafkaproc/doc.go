// Package kafkaproc runs real Kafka brokers as child processes, from the jars that deploy/kafka/fetch.sh downloads.
//
// It owns fetching, configuration, formatting, start, readiness, stop, kill and restart of KRaft clusters on 127.0.0.1.
// It must never import testing or packages of the product, so that the demo's helper and the tests share it, and it is no
// part of the product itself. Tests use it through internal/test/kafkatest. Start with Config and Start.
package kafkaproc
