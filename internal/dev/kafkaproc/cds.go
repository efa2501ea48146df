package kafkaproc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A broker spends half of its start on reading and checking classes. The JVM can write the classes it has loaded into an
// archive when it ends, and map that on the next start. The archive lies beside the jars in the cache, one per JVM.

// archiveFile is where the archive for the version's jars and the present JVM belongs.
func archiveFile(libs string) (string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", err
	}
	if java, err = filepath.EvalSymlinks(java); err != nil {
		return "", err
	}
	info, err := os.Stat(java)
	if err != nil {
		return "", err
	}
	// A JVM refuses another one's archive, so a mistake here costs time and nothing else.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", java, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(filepath.Dir(libs), "classes-"+hex.EncodeToString(sum[:6])+".jsa"), nil
}

// classArchive returns the archive to start brokers with. When there is none yet, a broker is started and stopped to write
// it. "" means to start without, the slower way: another process is writing it just now, or it cannot be had, for a reason
// that is said on cfg.Progress.
func classArchive(ctx context.Context, cfg Config, libs string) string {
	archive, err := findArchive(ctx, cfg.Version, libs)
	if err != nil && cfg.Progress != nil {
		fmt.Fprintf(cfg.Progress, "kafka %s: brokers start slowly, without a class archive: %v\n", cfg.Version, err)
	}
	return archive
}

func findArchive(ctx context.Context, v Version, libs string) (string, error) {
	archive, err := archiveFile(libs)
	if err != nil {
		return "", fmt.Errorf("look for the class archive: %w", err)
	}
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(libs), "classes.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("open the class archive's lock: %w", err)
	}
	// Closing releases the lock.
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil
		}
		return "", fmt.Errorf("lock the class archive: %w", err)
	}
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	if err := writeArchive(ctx, v, archive); err != nil {
		return "", err
	}
	return archive, nil
}

func writeArchive(ctx context.Context, v Version, archive string) error {
	dir, err := os.MkdirTemp("", "mirrorflow-classes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	half := archive + ".half"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	c, err := Start(ctx, Config{Version: v, Dir: dir, writeArchive: half})
	if err != nil {
		return fmt.Errorf("start a broker to write the class archive: %w", err)
	}
	// The JVM writes the archive while it ends.
	if err := c.Stop(ctx); err != nil {
		return fmt.Errorf("write the class archive: %w; end of the log:\n%s", err, c.nodes[0].LogTail(20))
	}
	if err := os.Rename(half, archive); err != nil {
		return fmt.Errorf("the broker wrote no class archive: %w; end of its log:\n%s", err, c.nodes[0].LogTail(20))
	}
	return nil
}
