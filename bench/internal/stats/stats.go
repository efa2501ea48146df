// Package stats is the arithmetic of the benchmark: percentiles, medians, and the steady middle of a run.
//
// It is pure and knows nothing of Kafka, processes or files. Start with Middle for runs and Quantile for latencies.
package stats

import (
	"math"
	"slices"
	"time"
)

// Sample is what was seen at one moment of a run. All counters only grow.
type Sample struct {
	At      time.Duration // since the mirror's process started
	Records int64         // on the target
	// CPU is what each observed process (the mirror, the brokers) had used, user and system.
	CPU []time.Duration
}

// Window is a part of a run, from one share of its records to another.
type Window struct {
	From, To time.Duration
	Records  float64         // copied within
	CPU      []time.Duration // used within, in the order of the samples
}

// Seconds is the window's length.
func (w Window) Seconds() float64 { return (w.To - w.From).Seconds() }

// Middle returns the part of the run in which the records between the shares from and to (0 to 1) of total arrived,
// interpolated between samples. ok is false when the samples do not hold that part: too few records, or all of them at one
// moment.
func Middle(samples []Sample, total int64, from, to float64) (w Window, ok bool) {
	if total <= 0 || len(samples) < 2 {
		return Window{}, false
	}
	first, fine := at(samples, from*float64(total))
	last, also := at(samples, to*float64(total))
	if !fine || !also || last.At <= first.At {
		return Window{}, false
	}
	w = Window{From: first.At, To: last.At, Records: (to - from) * float64(total)}
	for i := range last.CPU {
		w.CPU = append(w.CPU, last.CPU[i]-first.CPU[i])
	}
	return w, true
}

// at is the moment at which the records reached the level, on the line between the two samples around it.
func at(samples []Sample, level float64) (Sample, bool) {
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		if float64(b.Records) < level {
			continue
		}
		if float64(a.Records) >= level || a.Records == b.Records {
			return a, true
		}
		share := (level - float64(a.Records)) / float64(b.Records-a.Records)
		out := Sample{At: a.At + time.Duration(share*float64(b.At-a.At)), Records: int64(level)}
		for c := range a.CPU {
			out.CPU = append(out.CPU, a.CPU[c]+time.Duration(share*float64(b.CPU[c]-a.CPU[c])))
		}
		return out, true
	}
	return Sample{}, false
}

// Thin returns at most n samples, spread evenly, among them the first and the last.
func Thin(samples []Sample, n int) []Sample {
	if len(samples) <= n || n < 2 {
		return samples
	}
	out := make([]Sample, 0, n)
	for i := range n {
		out = append(out, samples[i*(len(samples)-1)/(n-1)])
	}
	return out
}

// Quantile is the smallest value that at least the share q (0 to 1) of the sorted values do not exceed. It is NaN without
// values.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Summary is the middle and the range of some runs' figures.
type Summary struct {
	Median, Min, Max float64
	N                int
}

// Summarize takes the median (of an even number: the mean of the two in the middle) and the range. Without values, N is 0
// and the rest NaN.
func Summarize(values []float64) Summary {
	s := slices.Clone(values)
	slices.Sort(s)
	if len(s) == 0 {
		return Summary{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	median := s[len(s)/2]
	if len(s)%2 == 0 {
		median = (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	return Summary{Median: median, Min: s[0], Max: s[len(s)-1], N: len(s)}
}

// Order is the order in which contestants run, each as often as rounds says: A B B A A B …, so that what changes slowly on
// the machine falls on all of them alike.
func Order(names []string, rounds int) []string {
	var out []string
	for r := range rounds {
		round := slices.Clone(names)
		if r%2 == 1 {
			slices.Reverse(round)
		}
		out = append(out, round...)
	}
	return out
}
