package mirror

import "context"

// carrier is what the paths do differently: how records are read, wait and are written. The rest, when and what for and
// what an answer means, is the core's.
type carrier interface {
	// lanes says over how many lanes the partitions of a target broker are spread, and how many requests may be under way
	// in each.
	lanes() (lanes, requests int)
	// room is how many bytes may be read now.
	room() int64
	// start readies a partition that was assigned, with the lock held.
	start(*part)
	// read asks one broker, calls core.fetched for every want and core.fetchDone once.
	read(context.Context, fetchJob)
	// write sends one request, and answers for each of the job's batches, in its order.
	write(context.Context, produceJob) ([]written, error)
	// narrow takes a refusal of a batch with more than one record: it sets the limits of the partition so that the next
	// batches are smaller, and gives the batch back or has it read again. The lock is held.
	narrow(*part, written, error, map[string]string)
	// disconnect ends the carrier's own connections, which nobody uses any more; it may be called again.
	disconnect()
}

// queue holds what was read of a partition and is not under way. The path's lock guards it.
type queue interface {
	empty() bool
	bytes() int64
	add(haul)
	// take removes the next batch, within the partition's limits; next is the source offset behind it.
	take(*part) (c cargo, next int64)
	// putBack undoes a take.
	putBack(cargo)
	drop()
}

// haul is what one answer held for one partition.
type haul interface {
	// next is the source offset to ask for now.
	next() int64
	empty() bool
	drop()
}

// cargo is one batch for the target.
type cargo interface {
	count() int
	bytes() int64
	// encode gives the batch as it is sent under an identity. It is called without the lock, never twice at a time.
	encode(identity) []byte
	// encoded is the size of what encode gave last.
	encoded() int
	spans(base int64) ([]Span, int64)
	// oldest and newest are record timestamps: the target may have forgotten the batch by the first, the last record has
	// the second.
	oldest() int64
	newest() int64
	// first is the source offset of the first record, size its length, where it is known.
	first() (offset int64, size int)
	// damaged tells that the bytes are not those that the source sealed.
	damaged() bool
	// detach is called when the batch will stay for long: it should hold no memory that others could use.
	detach()
	// drop ends the use of the batch's memory.
	drop()
}

// written is the target's answer for one batch.
type written struct {
	missing bool // the answer says nothing of it
	unsent  bool // the request surely did not reach the broker
	code    int16
	base    int64
	// appendTime: the target gave the records its own timestamps.
	appendTime bool
	message    string
	faults     []recordFault
}

// recordFault is an objection to one record of a batch.
type recordFault struct {
	index   int
	message string
}
