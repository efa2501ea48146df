package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/dataset"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

// benchCase is what one file of results is about.
type benchCase struct {
	name, title string
	run         func(ctx context.Context, b *bench, r *results.Result) error
}

// group is a name for several cases.
type group struct {
	name  string
	cases []string
}

// groups are, first, the six named cases of make bench, then those that hold others.
var groups = []group{
	{"100b-lz4", []string{"100b-lz4-large"}},
	{"latency", []string{"latency-1k", "latency-10k"}},
	{"scale", []string{"idle-1000", "idle-2000", "flows-200", "start"}},
	{"wan", []string{"wan-fresh", "wan-old"}},
	{"bench", []string{"1k-lz4-large", "1k-lz4-16k", "100b-lz4", "latency", "scale", "wan"}},
	{"all", nil}, // every case
}

// The dimensions of the full matrix.
var (
	recordSizes = []struct {
		name  string
		bytes int
		large int   // a large batch, as it travels
		total int64 // bytes of records in a case
	}{
		{"100b", 100, 64 << 10, 500e6},
		{"1k", 1024, 256 << 10, 2e9},
		{"10k", 10240, 256 << 10, 2e9},
	}
	codecs     = []dataset.Codec{dataset.LZ4, dataset.None, dataset.Zstd}
	partitions = []int32{16, 1}
)

const smallBatch = 16 << 10

// dataCases is the matrix of records, codecs, partitions and batches.
func dataCases() []benchCase {
	var out []benchCase
	for _, p := range partitions {
		for _, size := range recordSizes {
			for _, codec := range codecs {
				for _, large := range []bool{true, false} {
					set := dataset.Set{Partitions: p, RecordBytes: size.bytes, Codec: codec, BatchBytes: size.large}
					suffix, shape := "large", fmt.Sprintf("at least %d KiB", size.large>>10)
					if !large {
						set.BatchBytes, set.BatchAtMost = smallBatch, true
						suffix, shape = "16k", "at most 16 KiB"
					}
					name := fmt.Sprintf("%s-%s-%s", size.name, codec, suffix)
					if p == 1 {
						name += "-p1"
					}
					total := size.total
					if p == 1 {
						total /= 2 // one partition is one core's work
					}
					out = append(out, benchCase{
						name:  name,
						title: fmt.Sprintf("%d B records, %s, producer batches of %s, %d partitions", size.bytes, codec, shape, p),
						run: func(ctx context.Context, b *bench, r *results.Result) error {
							return b.dataCase(ctx, r, set, total)
						},
					})
				}
			}
		}
	}
	return out
}

// allCases are all cases, the data cases first.
func allCases() []benchCase {
	return append(dataCases(),
		benchCase{
			"latency-1k", "1,000 records of 1 KiB a second, 16 partitions: time from the intended sending to the reading at the target",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.latencyCase(ctx, r, 1000) },
		},
		benchCase{
			"latency-10k", "10,000 records of 1 KiB a second, 16 partitions: time from the intended sending to the reading at the target",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.latencyCase(ctx, r, 10_000) },
		},
		benchCase{
			"idle-1000", "100 topics of 10 partitions, without traffic",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.idleCase(ctx, r, 100) },
		},
		benchCase{
			"idle-2000", "200 topics of 10 partitions, without traffic",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.idleCase(ctx, r, 200) },
		},
		benchCase{
			"flows-200", "200 flows without traffic over two pairs of clusters in one worker",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.flowsCase(ctx, r, 200) },
		},
		benchCase{"start", "from the start of the process, a POST, and a new topic, to the first record on the target", startCase},
		benchCase{
			"wan-fresh", "one partition, 1 KiB lz4, batches of at most 16 KiB, over a line of 0, 20 and 80 ms to the target",
			func(ctx context.Context, b *bench, r *results.Result) error { return b.wanCase(ctx, r, 0) },
		},
		benchCase{
			"wan-old", "the same with records that are 30 days old",
			func(ctx context.Context, b *bench, r *results.Result) error {
				return b.wanCase(ctx, r, 30*24*time.Hour)
			},
		},
	)
}

func caseNames() []string {
	var out []string
	for _, c := range allCases() {
		out = append(out, c.name)
	}
	return out
}

// selectCases resolves names of cases and groups; each case comes once.
func selectCases(names []string) ([]benchCase, error) {
	byName := map[string]benchCase{}
	for _, c := range allCases() {
		byName[c.name] = c
	}
	seen := map[string]bool{}
	var out []benchCase
	var add func(name string) error
	add = func(name string) error {
		if c, ok := byName[name]; ok {
			if !seen[name] {
				seen[name] = true
				out = append(out, c)
			}
			return nil
		}
		for _, g := range groups {
			if g.name != name {
				continue
			}
			members := g.cases
			if members == nil {
				members = caseNames()
			}
			for _, m := range members {
				if err := add(m); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("there is no case %q; mirrorbench list names them", name)
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}
