// Command mirrorflow-dev runs the servers that a demo or a development setup needs beside the product, as ordinary
// foreground processes on 127.0.0.1: a real Kafka broker, a private Postgres.
//
//	mirrorflow-dev kafka --version 3.9 --dir DIR [--port P] [--cluster-id ID]
//	mirrorflow-dev postgres --dir DIR [--port P]
//	mirrorflow-dev free-port [N]
//
// The first two print one line beginning with "ready" on stdout once the server serves, end it on SIGINT or SIGTERM (a
// second signal kills it), and exit 0 then; when the server ends by itself they print the end of its log and exit 1. The
// server never outlives mirrorflow-dev. Data in DIR are kept and used again. free-port prints N free ports, one a line.
//
// It must never be needed to run the product. Start with main.go; the work is done in internal/dev.
package main
