// A worker of the benches that locks by etcd's own Go package, clientv3/concurrency.
//
// It prints `ready`; for each line `go <Unix time in milliseconds>` it calls from now on, counts from that time, and prints one
// line of JSON; it ends with its standard input. The worker in Rust, whose protocol this is, is benches/src/worker.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var (
	_        = flag.String("peer", "go", "this")
	_        = flag.String("work", "calls", "lock and unlock, one after another, in every task")
	tasks    = flag.Int("tasks", 1, "goroutines")
	names    = flag.Int("names", 1, "names; each task goes through its share of them")
	endpoint = flag.String("endpoint", "", "URLs of etcd, separated by commas")
	seconds  = flag.Float64("seconds", 1, "how long to count")
	witness  = flag.String("witness", "", "a file that counts the calls of all processes")
)

func main() {
	flag.Parse()
	// One client, which is one connection, for the whole process, as its documentation advises.
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(*endpoint, ","), DialTimeout: 10 * time.Second})
	check(err)
	defer client.Close()

	// A session is one owner: two mutexes of one name on one session would both be held. So tasks that contend for a name
	// need a session each; where every task has its name to itself, they share one, which is cheaper.
	sessions := make([]*concurrency.Session, 1)
	if *tasks > *names {
		sessions = make([]*concurrency.Session, *tasks)
	}
	for i := range sessions {
		sessions[i], err = concurrency.NewSession(client)
		check(err)
		defer sessions[i].Close()
	}
	seen := newSeen()
	fmt.Println("ready")

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 2 || words[0] != "go" {
			check(fmt.Errorf("no order: %q", lines.Text()))
		}
		at, err := strconv.ParseInt(words[1], 10, 64)
		check(err)
		begin := time.Now().Add(time.Until(time.UnixMilli(at)))
		end := begin.Add(time.Duration(*seconds * float64(time.Second)))

		tallies := make([]tally, *tasks)
		seen.clear()
		var all sync.WaitGroup
		for i := 0; i < *tasks; i++ {
			tallies[i].latency = map[time.Duration]uint64{}
			all.Add(1)
			go func(i int) {
				defer all.Done()
				tallies[i].run(sessions[i%len(sessions)], i, seen, begin, end)
			}(i)
		}
		all.Wait()

		sum := tally{latency: map[time.Duration]uint64{}}
		for i := range tallies {
			sum.add(&tallies[i])
		}
		answer, err := json.Marshal(map[string]interface{}{
			"count": sum.count, "total": sum.total, "seconds": *seconds,
			"latency": sum.latency, "witnessed": seen.sum(), "changes": seen.changes, "rss": rss(),
		})
		check(err)
		fmt.Println(string(answer))
	}
}

// What a task has done.
type tally struct {
	count, total uint64
	// How many calls took so long, to ten microseconds; nanoseconds in JSON.
	latency map[time.Duration]uint64
}

func (t *tally) run(session *concurrency.Session, task int, seen *seen, begin, end time.Time) {
	ctx := context.Background()
	// Each task goes through names of its own, in turn: one, if there are as many names as tasks.
	for name := task % *names; ; name = (name + *tasks) % *names {
		from := time.Now()
		if !from.Before(end) {
			return
		}
		mutex := concurrency.NewMutex(session, fmt.Sprintf("go/%d", name))
		check(mutex.Lock(ctx))
		seen.enter(name)
		check(mutex.Unlock(ctx))
		t.total++
		to := time.Now()
		// A call counts where it ends.
		if !to.Before(begin) && to.Before(end) {
			t.count++
			t.latency[to.Sub(from).Round(10*time.Microsecond)]++
		}
	}
}

func (t *tally) add(other *tally) {
	t.count += other.count
	t.total += other.total
	for took, n := range other.latency {
		t.latency[took] += n
	}
}

// The witness of exclusion: counters that lose something if two count at a time.
type seen struct {
	counters []uint64
	file     *os.File
	// Calls that came after one of another process.
	changes uint64
}

func newSeen() *seen {
	s := &seen{counters: make([]uint64, *names)}
	if *witness != "" {
		var err error
		s.file, err = os.OpenFile(*witness, os.O_RDWR, 0)
		check(err)
	}
	return s
}

func (s *seen) enter(name int) {
	if s.file == nil {
		n := atomic.LoadUint64(&s.counters[name])
		atomic.StoreUint64(&s.counters[name], n+1)
		return
	}
	// The count, and who was there last.
	var n [16]byte
	_, err := s.file.ReadAt(n[:], int64(name)*16)
	check(err)
	if me := uint64(os.Getpid()); binary.LittleEndian.Uint64(n[8:]) != me {
		atomic.AddUint64(&s.changes, 1)
		binary.LittleEndian.PutUint64(n[8:], me)
	}
	binary.LittleEndian.PutUint64(n[:], binary.LittleEndian.Uint64(n[:])+1)
	_, err = s.file.WriteAt(n[:], int64(name)*16)
	check(err)
}

func (s *seen) clear() {
	s.changes = 0
	for i := range s.counters {
		s.counters[i] = 0
	}
}

func (s *seen) sum() (sum uint64) {
	for _, n := range s.counters {
		sum += n
	}
	return sum
}

// Resident memory in bytes.
func rss() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go worker:", err)
		os.Exit(1)
	}
}
