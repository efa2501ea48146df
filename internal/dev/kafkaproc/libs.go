package kafkaproc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mirrorflow/mirrorflow/deploy/kafka"
)

// Version names a line of Kafka releases; the exact release stands in deploy/kafka/<version>/pom.xml.
type Version string

// The versions that can be run.
const (
	V39 Version = "3.9"
	V43 Version = "4.3"
)

// Libs returns the folder of the version's jars, which it downloads with Maven when they are not in the cache
// (MIRRORFLOW_CACHE, default ~/.cache/mirrorflow). Progress of a download goes to progress, which may be nil. The error
// says what to install when Maven or Java is missing.
func Libs(ctx context.Context, v Version, progress io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "mirrorflow-fetch-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the fetch script: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	err = fs.WalkDir(kafka.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, path)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		text, err := kafka.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
	if err != nil {
		return "", fmt.Errorf("write the fetch script: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(dir, "fetch.sh"), string(v))
	cmd.Stderr = &said
	if progress != nil {
		cmd.Stderr = io.MultiWriter(&said, progress)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("fetch the jars of Kafka %s: %w: %s", v, err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// startFlags make a short-lived JVM start fast: no second compiler tier, no parallel collector, shared class data.
var startFlags = []string{"-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"}

// JavaCommand is a command that runs a main class of Kafka with the version's jars: a tool, or MirrorMaker 2. jvmFlags
// come before the class. It is not started; give it to childproc.Start or run it.
func JavaCommand(ctx context.Context, v Version, jvmFlags []string, mainClass string, args ...string) (*exec.Cmd, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("no Java found, install version 17 or later (on Debian with 'apt-get install openjdk-17-jre-headless'): %w", err)
	}
	libs, err := Libs(ctx, v, nil)
	if err != nil {
		return nil, err
	}
	all := append([]string{}, startFlags...)
	all = append(all, jvmFlags...)
	all = append(all, "-cp", libs+"/*", mainClass)
	return exec.CommandContext(ctx, java, append(all, args...)...), nil
}
