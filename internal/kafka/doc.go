// Package kafka opens connections to Kafka clusters and explains failures.
//
// It owns: the settings of a cluster (Cluster, Security), live credentials
// (Credentials: swapped without closing clients), kgo options made from them,
// the stepwise connection check (Check), the one table from client and broker
// errors to problem codes (Classify, KindOf), and the client metrics hook. It
// must never decide what to copy, and knows nothing of flows, stores or HTTP.
//
// Words that people see are written in explain.go and probe.go, nowhere else.
//
// Start at Cluster, then Check and Classify.
package kafka
