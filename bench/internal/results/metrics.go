package results

// The figures of runs. Per GB means per 10^9 bytes of records before compression; steady means from the moment at which a
// tenth of the records was on the target to the moment at which nine tenths were.
const (
	FirstRecord    = "first_record_s"           // process start to first record on the target
	Drain          = "drain_s"                  // process start to last record on the target
	DrainFromFirst = "drain_from_first_s"       // first to last record
	Throughput     = "steady_mb_per_s"          // 10^6 bytes of records
	CPUSteady      = "cpu_s_per_gb"             // the mirror's processes, steady
	CPUTotal       = "cpu_s_per_gb_from_start"  // the same from process start to last record
	SystemShare    = "system_share"             // of the mirror's CPU, what the kernel used for it, from the process's start
	BrokersSteady  = "brokers_cpu_s_per_gb"     // both brokers, steady
	SourceSteady   = "source_cpu_s_per_gb"      //
	TargetSteady   = "target_cpu_s_per_gb"      //
	BrokersCores   = "brokers_cores"            // processors that both brokers kept busy, steady
	AllCores       = "all_cores"                // with the mirror
	PeakMB         = "peak_mb"                  // VmHWM of the mirror's processes, in 10^6 bytes
	RSSMB          = "rss_mb"                   // VmRSS at the end of the measured time
	DiskRatio      = "disk_ratio"               // .log bytes on the target over those on the source
	P50            = "p50_ms"                   // from the intended time of sending to receiving at the target
	P99            = "p99_ms"                   //
	P999           = "p999_ms"                  //
	Max            = "max_ms"                   //
	SourceP50      = "source_p50_ms"            // the same at the source, in the same run
	SourceP99      = "source_p99_ms"            //
	SourceP999     = "source_p999_ms"           //
	OverSourceP99  = "p99_over_source_ms"       // P99 − SourceP99
	LoadCPU        = "load_cpu_percent"         // the mirror at the given rate, of one core
	IdleCPU        = "idle_cpu_percent"         // of one core
	IdleBrokers    = "idle_brokers_cpu_percent" // both brokers, of one core
	Connections    = "connections_per_broker"   // established, to the broker with most
	FromPOST       = "post_to_first_record_s"   //
	NewTopic       = "new_topic_first_record_s" // creating a topic with records to its first record on the target
	MBAtEnd        = "copied_mb"                // 10^6 bytes of records copied in the time given
)

// Metric names a figure for readers.
type Metric struct {
	Name, Title string
	// Less is better.
	Less bool
}

// Metrics are all figures, in the order of tables.
var Metrics = []Metric{
	{CPUSteady, "CPU s per GB, middle 80 %", true},
	{CPUTotal, "CPU s per GB, start to drained", true},
	{SystemShare, "… share of it used by the kernel", true},
	{BrokersSteady, "brokers' CPU s per GB, middle 80 %", true},
	{SourceSteady, "… of which source", true},
	{TargetSteady, "… of which target", true},
	{BrokersCores, "cores used by the brokers, middle 80 %", true},
	{AllCores, "cores used by brokers and mirror", true},
	{Throughput, "MB/s, middle 80 %", false},
	{Drain, "start to drained, s", true},
	{DrainFromFirst, "first record to drained, s", true},
	{FirstRecord, "process start to first record, s", true},
	{FromPOST, "POST to first record, s", true},
	{NewTopic, "new topic to its first record, s", true},
	{PeakMB, "peak memory, MB", true},
	{DiskRatio, "bytes on disk, target / source", true},
	{P50, "latency p50, ms", true},
	{P99, "latency p99, ms", true},
	{P999, "latency p99.9, ms", true},
	{Max, "latency max, ms", true},
	{SourceP50, "at the source directly: p50, ms", true},
	{SourceP99, "at the source directly: p99, ms", true},
	{SourceP999, "at the source directly: p99.9, ms", true},
	{OverSourceP99, "p99 above the source's, ms", true},
	{LoadCPU, "CPU at that rate, % of a core", true},
	{IdleCPU, "idle CPU, % of a core", true},
	{IdleBrokers, "brokers' idle CPU, % of a core", true},
	{RSSMB, "resident memory, MB", true},
	{Connections, "connections per broker", true},
	{MBAtEnd, "MB copied", false},
}
