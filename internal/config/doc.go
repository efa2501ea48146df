// Package config reads the settings of the processes from environment
// variables that begin with MIRRORFLOW_.
//
// It owns the names, types, defaults and checks of all settings; docs/config.md
// describes them and a test keeps the two equal. It must never open what a
// setting names (files, databases, listeners), and never put the value of a
// setting that may hold a secret into an error.
//
// Start at API and Worker, the structs that LoadAPI and LoadWorker fill.
package config
