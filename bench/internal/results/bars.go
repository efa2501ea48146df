package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// bar is a figure that must be reached.
type bar struct {
	figure, bound string
	// find returns what was found, for readers, and whether it is enough; "" when the cases that it needs were not run.
	find func(all map[string]Result) (found string, met bool)
}

// bars are those of the project's plan. Ratios are of medians; of peaks and sizes the worst run counts.
var bars = []bar{
	{"CPU per GB, middle 80 %, 1 KiB lz4, batches ≥ 256 KiB, against tuned MM2", "≤ 1/50", share("1k-lz4-large", "", CPUSteady, mm2Tuned, 50)},
	{"the same with batches of 16 KiB", "≤ 1/20", share("1k-lz4-16k", "", CPUSteady, mm2Tuned, 20)},
	{"CPU per GB, middle 80 %, 100 B lz4, batches ≥ 64 KiB, against tuned MM2", "≤ 1/150", share("100b-lz4-large", "", CPUSteady, mm2Tuned, 150)},
	{"brokers' CPU per GB, 1 KiB lz4, batches ≥ 256 KiB, against tuned MM2", "≤ 1", share("1k-lz4-large", "", BrokersSteady, mm2Tuned, 1)},
	{"… with batches of 16 KiB", "≤ 1", share("1k-lz4-16k", "", BrokersSteady, mm2Tuned, 1)},
	{"… with records of 100 B, batches ≥ 64 KiB", "≤ 1", share("100b-lz4-large", "", BrokersSteady, mm2Tuned, 1)},
	{"start to drained, 1 KiB lz4, batches ≥ 256 KiB, against tuned MM2", "≤ 1/4", share("1k-lz4-large", "", Drain, mm2Tuned, 4)},
	{"throughput of the middle 80 % in the same runs, or the brokers are the limit", "≥ 4 ×", throughputOrBrokers},
	{"peak memory, worst run of all data cases", "≤ 96 MB", worst(PeakMB, 96)},
	{"peak memory against MM2's, each data case, worst run against the median", "≤ 1/20", peakShare},
	{"latency at 1,000 records/s, p50 against tuned MM2", "≤ 1/3", share("latency-1k", "", P50, mm2Tuned, 3)},
	{"latency at 1,000 records/s, p99 against tuned MM2", "≤ 1/3", share("latency-1k", "", P99, mm2Tuned, 3)},
	{"latency at 1,000 records/s, p99 above that at the source directly", "≤ 5 ms", atMost("latency-1k", OverSourceP99, 5)},
	{"idle with 1,000 partitions, CPU", "≤ 1 % of a core", atMost("idle-1000", IdleCPU, 1)},
	{"idle with 1,000 partitions, resident memory", "≤ 64 MB", atMost("idle-1000", RSSMB, 64)},
	{"200 idle flows over 2 cluster pairs, resident memory", "≤ 150 MB", atMost("flows-200", RSSMB, 150)},
	{"200 idle flows over 2 cluster pairs, connections per broker", "≤ 16", atMost("flows-200", Connections, 16)},
	{"process start to first record", "≤ 1 s", atMost("start", FirstRecord, 1)},
	{"POST to first record with a worker running", "≤ 1 s", atMost("start", FromPOST, 1)},
	{"first record of a new topic at defaults", "≤ 6 s", atMost("start", NewTopic, 6)},
	{"throughput of one partition at 80 ms round trip, against MM2 at defaults", "≥ 20 ×", more("wan-fresh", "80 ms", Throughput, mm2, 20)},
	{"the same with records 30 days old", "≥ 8 ×", more("wan-old", "80 ms", Throughput, mm2, 8)},
	{"bytes on disk, target / source, worst run of all data cases", "≤ 1.02", worst(DiskRatio, 1.02)},
}

type finder = func(map[string]Result) (string, bool)

// share wants ours to be at most one nth of the rival's.
func share(name, variant, metric, rival string, n float64) finder {
	return func(all map[string]Result) (string, bool) {
		own, other := all[name].Summary(ours, variant, metric), all[name].Summary(rival, variant, metric)
		if own.N == 0 || other.N == 0 {
			return "", false
		}
		found := fmt.Sprintf("%s against %s: 1/%s", number(own.Median), number(other.Median), number(other.Median/own.Median))
		return found, own.Median*n <= other.Median
	}
}

// more wants ours to be at least n times the rival's.
func more(name, variant, metric, rival string, n float64) finder {
	return func(all map[string]Result) (string, bool) {
		own, other := all[name].Summary(ours, variant, metric), all[name].Summary(rival, variant, metric)
		if own.N == 0 || other.N == 0 {
			return "", false
		}
		return fmt.Sprintf("%s against %s: %s ×", number(own.Median), number(other.Median), number(own.Median/other.Median)), own.Median >= n*other.Median
	}
}

// atMost wants the median of ours not to exceed the limit.
func atMost(name, metric string, limit float64) finder {
	return func(all map[string]Result) (string, bool) {
		s := all[name].Summary(ours, "", metric)
		if s.N == 0 {
			return "", false
		}
		return span(s), s.Median <= limit
	}
}

// dataCases are the results that have a set of records and no line in between.
func dataCases(all map[string]Result) []Result {
	var out []Result
	for _, r := range all {
		if r.Set != nil && !strings.HasPrefix(r.Case, "wan-") {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Result) int { return strings.Compare(a.Case, b.Case) })
	return out
}

// worst wants no run of ours in any data case to exceed the limit.
func worst(metric string, limit float64) finder {
	return func(all map[string]Result) (string, bool) {
		most, where := math.Inf(-1), ""
		for _, r := range dataCases(all) {
			if s := r.Summary(ours, "", metric); s.N > 0 && s.Max > most {
				most, where = s.Max, r.Case
			}
		}
		if where == "" {
			return "", false
		}
		return fmt.Sprintf("%s (%s)", number(most), where), most <= limit
	}
}

// peakShare wants the peak of ours to be at most a twentieth of each MM2's in each data case.
func peakShare(all map[string]Result) (string, bool) {
	least, where := math.Inf(1), ""
	for _, r := range dataCases(all) {
		for _, rival := range []string{mm2, mm2Tuned} {
			own, other := r.Summary(ours, "", PeakMB), r.Summary(rival, "", PeakMB)
			if own.N > 0 && other.N > 0 && other.Median/own.Max < least {
				least, where = other.Median/own.Max, r.Case+", "+rival
			}
		}
	}
	if where == "" {
		return "", false
	}
	return fmt.Sprintf("1/%s (%s)", number(least), where), least >= 20
}

// throughputOrBrokers wants four times the rival's throughput, unless the brokers alone take nearly all processors.
func throughputOrBrokers(all map[string]Result) (string, bool) {
	const nearlyAll = 0.85
	name := "1k-lz4-large"
	found, met := more(name, "", Throughput, mm2Tuned, 4)(all)
	cores := all[name].Summary(ours, "", BrokersCores)
	if found == "" || cores.N == 0 {
		return "", false
	}
	cpus := float64(all[name].Machine.CPUs)
	return fmt.Sprintf("%s; the brokers took %s of %g cores", found, number(cores.Median), cpus), met || cores.Median >= nearlyAll*cpus
}

// Bars is the table of what must be reached, in Markdown.
func Bars(all map[string]Result) string {
	var out strings.Builder
	out.WriteString("| figure | bar | found | met |\n|---|---|---|---|\n")
	for _, b := range bars {
		found, met := b.find(all)
		verdict := "**no**"
		switch {
		case found == "":
			found, verdict = "–", "not run"
		case met:
			verdict = "yes"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", b.figure, b.bound, found, verdict)
	}
	for _, r := range all {
		if r.Scale != 1 {
			out.WriteString("\n**Some of these cases were only tried out below their full size.**\n")
			break
		}
	}
	return out.String()
}
