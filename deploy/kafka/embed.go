// Package kafka embeds the poms and the script that download the jars of real Kafka brokers, so that tests and
// development tools find them wherever they are run from. It holds files only; internal/dev/kafkaproc uses them.
// It must never be imported by the product's binaries. Start with fetch.sh.
package kafka

import "embed"

// Files holds fetch.sh and one <version>/pom.xml per broker version.
//
//go:embed fetch.sh 3.9/pom.xml 4.3/pom.xml
var Files embed.FS
