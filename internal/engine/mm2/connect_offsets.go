package mm2

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Names of the connectors of a dedicated MM2, the first element of the keys in Connect's offsets topic. Other
// deployments have their own, for example "A->B.MirrorSourceConnector".
const (
	SourceConnectorName     = "MirrorSourceConnector"
	CheckpointConnectorName = "MirrorCheckpointConnector"
	HeartbeatConnectorName  = "MirrorHeartbeatConnector"
	// ConnectOffsetsPartitions is the partition count that Connect gives its offsets topic (offset.storage.partitions).
	ConnectOffsetsPartitions = 25
)

// ErrConnectOffset is wrapped by the errors about keys and values of Connect's offsets topic that cannot be read.
var ErrConnectOffset = errors.New("mm2: not a connect offset record")

// ConnectSourceOffset identifies one source partition's progress in Connect's offsets topic.
type ConnectSourceOffset struct {
	Connector string // connector name, SourceConnectorName for dedicated MM2
	Cluster   string // source alias
	Topic     string // name on the source
	Partition int32
}

// Key encodes the record key. The member order is part of the format: Connect looks offsets up by the raw bytes.
func (o ConnectSourceOffset) Key() []byte {
	b := appendConnectName(nil, o.Connector)
	b = append(b, `,{"cluster":`...)
	b = appendJacksonString(b, o.Cluster)
	b = append(b, `,"partition":`...)
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, `,"topic":`...)
	b = appendJacksonString(b, o.Topic)
	return append(b, "}]"...)
}

// ConnectCheckpointKey encodes the checkpoint connector's key. topic is the name on the target.
func ConnectCheckpointKey(connector, group, topic string, partition int32) []byte {
	b := appendConnectName(nil, connector)
	b = append(b, `,{"partition":`...)
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, `,"topic":`...)
	b = appendJacksonString(b, topic)
	b = append(b, `,"group":`...)
	b = appendJacksonString(b, group)
	return append(b, "}]"...)
}

// ConnectHeartbeatKey encodes the heartbeat connector's key.
func ConnectHeartbeatKey(connector, sourceAlias, targetAlias string) []byte {
	b := appendConnectName(nil, connector)
	b = append(b, `,{"sourceClusterAlias":`...)
	b = appendJacksonString(b, sourceAlias)
	b = append(b, `,"targetClusterAlias":`...)
	b = appendJacksonString(b, targetAlias)
	return append(b, "}]"...)
}

// ConnectOffsetValue encodes the value: the source offset of the last record up to which all are acknowledged.
func ConnectOffsetValue(offset int64) []byte {
	b := append([]byte(nil), `{"offset":`...)
	b = strconv.AppendInt(b, offset, 10)
	return append(b, '}')
}

// ParseConnectSourceKey reads a source connector's key. Keys of other connectors and foreign keys are ErrConnectOffset.
// canonical is false when the bytes are not those that MM2 would write, whose offset MM2 then does not see.
func ParseConnectSourceKey(key []byte) (o ConnectSourceOffset, canonical bool, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(key, &parts); err != nil || len(parts) != 2 {
		return o, false, fmt.Errorf("%w: key is not a JSON array of two", ErrConnectOffset)
	}
	var fields struct {
		Cluster   *string `json:"cluster"`
		Topic     *string `json:"topic"`
		Partition *int32  `json:"partition"`
	}
	if err := json.Unmarshal(parts[0], &o.Connector); err != nil {
		return o, false, fmt.Errorf("%w: connector name: %w", ErrConnectOffset, err)
	}
	if err := json.Unmarshal(parts[1], &fields); err != nil {
		return ConnectSourceOffset{}, false, fmt.Errorf("%w: partition map: %w", ErrConnectOffset, err)
	}
	if fields.Cluster == nil || fields.Topic == nil || fields.Partition == nil || *fields.Partition < 0 {
		return ConnectSourceOffset{}, false, fmt.Errorf("%w: key lacks cluster, topic or partition", ErrConnectOffset)
	}
	o.Cluster, o.Topic, o.Partition = *fields.Cluster, *fields.Topic, *fields.Partition
	return o, bytes.Equal(o.Key(), key), nil
}

// ParseConnectOffsetValue reads a value. A nil value is ErrTombstone (no offset is stored); anything but an integral
// offset is ErrConnectOffset. Negative offsets are returned as they are; MM2 treats them as none.
func ParseConnectOffsetValue(value []byte) (int64, error) {
	if value == nil {
		return 0, ErrTombstone
	}
	var v struct {
		Offset *int64 `json:"offset"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return 0, fmt.Errorf("%w: value: %w", ErrConnectOffset, err)
	}
	if v.Offset == nil {
		return 0, fmt.Errorf("%w: value has no offset", ErrConnectOffset)
	}
	return *v.Offset, nil
}

func appendConnectName(b []byte, connector string) []byte {
	return appendJacksonString(append(b, '['), connector)
}

// appendJacksonString writes a JSON string as Jackson's defaults do: quote, backslash and control characters escaped
// (short forms where JSON has them), characters beyond the basic plane as two escaped surrogates, all else raw UTF-8.
func appendJacksonString(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		case r > 0xffff:
			r -= 0x10000
			for _, u := range [2]rune{0xd800 + r>>10, 0xdc00 + r&0x3ff} {
				b = append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
			}
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// Murmur2 is Kafka's hash of record keys, as the unsigned form of Java's int.
func Murmur2(data []byte) uint32 {
	const (
		m = 0x5bd1e995
		r = 24
	)
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// KeyPartition is the partition that Java's default partitioner gives a record with this key. partitions must be
// positive.
func KeyPartition(key []byte, partitions int32) int32 {
	return int32(Murmur2(key)&0x7fffffff) % partitions
}
