// Committed entries a second of three of etcd's Raft cores in one process, without any I/O.
//
// Arguments: values in flight, bytes of a value, seconds.  Prints one line of JSON: the rate by
// the wall and by the processor.  Every message arrives at once, and storage is in memory, as in
// bench_raft_core.py.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const kept = 50_000 // entries, until the log is compacted

type server struct {
	node    *raft.RawNode
	storage *raft.MemoryStorage
	applied uint64
	first   uint64
}

func newServer(id uint64, voters []uint64) *server {
	storage := raft.NewMemoryStorage()
	one := uint64(1)
	founding := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: &raftpb.ConfState{Voters: voters}, Index: &one, Term: &one,
	}}
	must(storage.ApplySnapshot(founding))
	node, err := raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, Applied: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	must(err)
	return &server{node: node, storage: storage, first: 1}
}

// Runs until nothing moves.
func run(servers map[uint64]*server) {
	for busy := true; busy; {
		busy = false
		for id := uint64(1); id <= uint64(len(servers)); id++ {
			one := servers[id]
			for one.node.HasReady() {
				busy = true
				ready := one.node.Ready()
				if !raft.IsEmptyHardState(ready.HardState) {
					must(one.storage.SetHardState(ready.HardState))
				}
				must(one.storage.Append(ready.Entries))
				for _, message := range ready.Messages {
					must(servers[message.GetTo()].node.Step(message))
				}
				for _, entry := range ready.CommittedEntries {
					one.applied = entry.GetIndex()
				}
				one.node.Advance(ready)
			}
			if one.applied > one.first+2*kept {
				one.first = one.applied - kept
				must(one.storage.Compact(one.first))
			}
		}
	}
}

func main() {
	window, size, seconds := number(1), number(2), number(3)
	servers := map[uint64]*server{}
	for id := uint64(1); id <= 3; id++ {
		servers[id] = newServer(id, []uint64{1, 2, 3})
	}
	leader := servers[1]
	must(leader.node.Campaign())
	run(servers)
	if leader.node.Status().RaftState != raft.StateLeader {
		log.Fatal("nobody leads")
	}
	value, from := make([]byte, int(size)), uint64(1)
	before, start, cpu := leader.applied, time.Now(), processTime()
	for time.Since(start).Seconds() < seconds {
		entries := make([]*raftpb.Entry, int(window))
		for at := range entries {
			entries[at] = &raftpb.Entry{Data: value}
		}
		must(leader.node.Step(&raftpb.Message{
			Type: raftpb.MsgProp.Enum(), From: &from, Entries: entries,
		}))
		run(servers)
	}
	elapsed, used := time.Since(start).Seconds(), processTime()-cpu
	for _, one := range servers {
		if one.applied != leader.applied {
			log.Fatal("not all have applied everything")
		}
	}
	count := float64(leader.applied - before)
	must(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"committed_per_second":     count / elapsed,
		"committed_per_cpu_second": count / used,
	}))
}

func processTime() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func number(at int) float64 {
	found, err := strconv.ParseFloat(os.Args[at], 64)
	must(err)
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
