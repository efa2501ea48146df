package results

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

// The contestants of the ratios, as lab names them.
const (
	mm2      = "mm2"
	mm2Tuned = "mm2-tuned"
	ours     = "ours"
)

// number writes a figure with three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func span(s stats.Summary) string {
	switch {
	case s.N == 0:
		return "–"
	case s.N == 1 || number(s.Min) == number(s.Max):
		return number(s.Median)
	default:
		return fmt.Sprintf("%s (%s … %s)", number(s.Median), number(s.Min), number(s.Max))
	}
}

// ratio of the other's median to ours, or the inverse where more is better: how many times better ours is.
func ratio(other, own stats.Summary, less bool) string {
	if other.N == 0 || own.N == 0 || own.Median == 0 || other.Median == 0 {
		return "–"
	}
	v := other.Median / own.Median
	if !less {
		v = 1 / v
	}
	return number(v) + " ×"
}

// Table is a case's figures in Markdown: medians and ranges of each contestant, and how many times better ours is.
func Table(r Result) string {
	var out strings.Builder
	engines := r.Engines()
	var rivals []string
	if slices.Contains(engines, ours) {
		for _, e := range []string{mm2, mm2Tuned} {
			if slices.Contains(engines, e) {
				rivals = append(rivals, e)
			}
		}
	}
	for _, variant := range r.Variants() {
		out.WriteString("\n")
		if variant != "" {
			fmt.Fprintf(&out, "**%s**\n\n", variant)
		}
		out.WriteString("| |")
		for _, e := range engines {
			out.WriteString(" " + e + " |")
		}
		for _, e := range rivals {
			out.WriteString(" " + e + " / ours |")
		}
		out.WriteString("\n|---|" + strings.Repeat("---|", len(engines)+len(rivals)) + "\n")
		for _, m := range Metrics {
			row, any := "| "+m.Title+" |", false
			for _, e := range engines {
				s := r.Summary(e, variant, m.Name)
				any = any || s.N > 0
				row += " " + span(s) + " |"
			}
			for _, e := range rivals {
				row += " " + ratio(r.Summary(e, variant, m.Name), r.Summary(ours, variant, m.Name), m.Less) + " |"
			}
			if any {
				out.WriteString(row + "\n")
			}
		}
	}
	out.WriteString("\n")
	checked, records := 0, int64(0)
	for _, run := range r.Runs {
		if run.Checked != nil && run.Checked.Good() && run.Checked.Records > 0 {
			checked++
			records += run.Checked.Records
		}
	}
	if checked > 0 {
		fmt.Fprintf(&out, "%d of %d runs were compared record by record and are right: %d records, each once, in order, unchanged.\n\n", checked, len(r.Runs), records)
	}
	for _, run := range r.Runs {
		if run.Error != "" {
			fmt.Fprintf(&out, "- **%s, round %d%s: %s**\n", run.Engine, run.Round, comma(run.Variant), run.Error)
		}
		for _, n := range run.Notes {
			fmt.Fprintf(&out, "- %s, round %d%s: %s\n", run.Engine, run.Round, comma(run.Variant), n)
		}
	}
	return out.String()
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

// Line is a run in one line, for the terminal.
func Line(run Run) string {
	parts := []string{fmt.Sprintf("%-12s", run.Engine)}
	if run.Variant != "" {
		parts = append(parts, run.Variant)
	}
	for _, m := range Metrics {
		if v, ok := run.Metrics[m.Name]; ok {
			parts = append(parts, m.Name+"="+number(v))
		}
	}
	if run.Checked != nil && run.Checked.Good() && run.Checked.Records > 0 {
		parts = append(parts, fmt.Sprintf("checked=%d", run.Checked.Records))
	}
	if run.Error != "" {
		parts = append(parts, "FAILED: "+run.Error)
	}
	return strings.Join(parts, "  ")
}

// Report is the page of all results, the cases in the given order.
func Report(all map[string]Result, order []string) string {
	var out strings.Builder
	out.WriteString("# Results\n\nMade by `mirrorbench report` from the files beside it; what is measured and how: [../README.md](../README.md).\n")
	out.WriteString("\n## What must be reached\n\n" + Bars(all))
	for _, name := range order {
		r, ok := all[name]
		if !ok {
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s", r.Case, r.Title)
		if r.Loaded != nil {
			fmt.Fprintf(&out, "; %.2f GB of records", float64(r.Loaded.RawBytes)/1e9)
		}
		fmt.Fprintf(&out, ". Commit %s, %s, %d × %s, %d MiB, Linux %s, %s, Kafka %s → %s, MM2 %s, %s.", r.Commit, r.Date.Format("2006-01-02"), r.Machine.CPUs, r.Machine.CPU,
			r.Machine.MemoryMB, r.Machine.Kernel, r.Machine.Java, r.Machine.Source, r.Machine.Target, r.Machine.MM2, r.Machine.Go)
		if r.Scale != 1 {
			fmt.Fprintf(&out, " **Tried out at %g of its size: no figures to quote.**", r.Scale)
		}
		out.WriteString("\n" + Table(r))
	}
	return out.String()
}
