// Package results holds what the benchmark found: one file per case, and the tables and bars made of them.
//
// It measures nothing. Start with Result and Report.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

// Result is one case.
type Result struct {
	Case    string    `json:"case"`
	Title   string    `json:"title"`
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	// Scale is the share of the case's full size that was used; figures for the bars need 1.
	Scale  float64           `json:"scale"`
	Params map[string]string `json:"params,omitempty"`
	Set    *dataset.Set      `json:"set,omitempty"`
	Loaded *dataset.Loaded   `json:"loaded,omitempty"`
	Runs   []Run             `json:"runs"`
}

// Machine is where it ran.
type Machine struct {
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu"`
	MemoryMB int64  `json:"memoryMB"`
	Kernel   string `json:"kernel"`
	Java     string `json:"java"`
	Go       string `json:"go"`
	Source   string `json:"sourceKafka"`
	Target   string `json:"targetKafka"`
	MM2      string `json:"mm2"`
}

// Run is one contestant's run.
type Run struct {
	Engine string `json:"engine"`
	// Variant tells runs of one case apart, such as the round trip; "" where there is one only.
	Variant string    `json:"variant,omitempty"`
	Round   int       `json:"round"`
	Started time.Time `json:"started"`
	// Error says why there are no figures, or which are missing.
	Error   string             `json:"error,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
	Metrics map[string]float64 `json:"metrics"`
	Checked *dataset.Checked   `json:"checked,omitempty"`
	// Samples are rows of: seconds since the process started, records on the target, processor seconds of the mirror, the
	// source broker and the target broker.
	Samples [][5]float64 `json:"samples,omitempty"`
	// Quantiles are rows of: share of the records, milliseconds at the target, milliseconds at the source.
	Quantiles [][3]float64 `json:"quantiles,omitempty"`
}

// samplesKept per run.
const samplesKept = 120

// SetSamples keeps some of the samples.
func (r *Run) SetSamples(samples []stats.Sample) {
	for _, s := range stats.Thin(samples, samplesKept) {
		row := [5]float64{round(s.At.Seconds()), float64(s.Records)}
		for i, c := range s.CPU {
			row[2+i] = round(c.Seconds())
		}
		r.Samples = append(r.Samples, row)
	}
}

// round keeps a tenth of a millisecond.
func round(v float64) float64 { return float64(int64(v*1e4+0.5)) / 1e4 }

// Engines are the contestants with runs, in the order of their first.
func (r Result) Engines() []string {
	var out []string
	for _, run := range r.Runs {
		if !slices.Contains(out, run.Engine) {
			out = append(out, run.Engine)
		}
	}
	return out
}

// Variants are those of the runs, in the order of their first.
func (r Result) Variants() []string {
	var out []string
	for _, run := range r.Runs {
		if !slices.Contains(out, run.Variant) {
			out = append(out, run.Variant)
		}
	}
	return out
}

// Summary is a metric's over the runs of an engine and variant that have it. Runs that went wrong do not count.
func (r Result) Summary(engine, variant, metric string) stats.Summary {
	var values []float64
	for _, run := range r.Runs {
		if v, ok := run.Metrics[metric]; ok && run.Error == "" && run.Engine == engine && run.Variant == variant {
			values = append(values, v)
		}
	}
	return stats.Summarize(values)
}

// File is where a case's result is in a folder.
func File(dir, name string) string { return filepath.Join(dir, name+".json") }

// Save writes the result into the folder, whole or not at all.
func Save(dir string, r Result) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the result of %s: %w", r.Case, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of results: %w", err)
	}
	half := File(dir, r.Case) + ".half"
	if err := os.WriteFile(half, append(compact(text), '\n'), 0o644); err != nil {
		return fmt.Errorf("write the result of %s: %w", r.Case, err)
	}
	return os.Rename(half, File(dir, r.Case))
}

// compact puts each row of samples on one line.
func compact(text []byte) []byte {
	var out strings.Builder
	row := false
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "[":
			row = true
			out.WriteString(strings.TrimRight(line, "\n"))
		case row && (trimmed == "]" || trimmed == "],"):
			row = false
			out.WriteString(trimmed + "\n")
		case row:
			out.WriteString(trimmed)
		default:
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}

// Load reads all results of a folder, by case.
func Load(dir string) (map[string]Result, error) {
	out := map[string]Result{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for results: %w", err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a result: %w", err)
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", e.Name(), err)
		}
		out[r.Case] = r
	}
	return out, nil
}

// SetLatencies takes sorted milliseconds at the target and, in the same run, at the source.
func (r *Run) SetLatencies(target, source []float64) {
	if len(target) == 0 || len(source) == 0 {
		return
	}
	for name, q := range map[string]float64{P50: 0.5, P99: 0.99, P999: 0.999, Max: 1} {
		r.Metrics[name] = stats.Quantile(target, q)
	}
	for name, q := range map[string]float64{SourceP50: 0.5, SourceP99: 0.99, SourceP999: 0.999} {
		r.Metrics[name] = stats.Quantile(source, q)
	}
	r.Metrics[OverSourceP99] = r.Metrics[P99] - r.Metrics[SourceP99]
	for _, q := range []float64{0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1} {
		r.Quantiles = append(r.Quantiles, [3]float64{q, round(stats.Quantile(target, q)), round(stats.Quantile(source, q))})
	}
}
