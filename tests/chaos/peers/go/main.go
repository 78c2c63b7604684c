// A worker of the torture that locks by etcd's own Go package, clientv3/concurrency.
//
//	worker <witness> <process> <seed> <mix> <sabotage>
//
// What it says to the witness is described in src/history.rs: one line of JSON each. It makes exclusive calls only. Each task has
// a session of its own, because a session is one owner. A body stops once the session's Done says that the lease is gone. A session
// with which a call has failed is closed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	hot     = 6
	cold    = 200
	long    = 12
	roamers = 10
	wait    = 10 * time.Second
	poll    = 10 * time.Millisecond
	// a call that waits until it is served
	forever = 0 * time.Second
	// longer than any fault lasts
	patience = 40 * time.Second
)

type object = map[string]interface{}

// line is the connection to the witness.
type line struct {
	sync.Mutex
	connection net.Conn
	awaited    map[uint64]chan struct{}
	calls      uint64
}

var (
	witness  = line{awaited: map[uint64]chan struct{}{}}
	draining = make(chan struct{})
)

func main() {
	// os.Args[1] is the word `worker`.
	if len(os.Args) != 7 {
		check(fmt.Errorf("usage: worker <witness> <process> <seed> <mix> <sabotage>"))
	}
	var err error
	witness.connection, err = net.Dial("tcp", os.Args[2])
	check(err)
	_, err = fmt.Fprintln(witness.connection, os.Args[3])
	check(err)
	go acknowledge()
	seed, err := strconv.ParseUint(os.Args[4], 10, 64)
	check(err)

	client := connect()
	var tasks sync.WaitGroup
	for task := 0; task < hot+roamers; task++ {
		tasks.Add(1)
		c := caller{client: client, random: rand.New(rand.NewSource(int64(seed) + int64(task)<<32))}
		go func(task int) {
			defer tasks.Done()
			for !drains() {
				if task < hot {
					c.exclusive("hot", fmt.Sprintf("hot/%d", task), wait, c.between(2, 30))
				} else {
					c.roam()
				}
				time.Sleep(c.between(10, 100))
			}
			c.close()
		}(task)
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	close(draining)
	tasks.Wait()
	client.Close()
	say(now(), "drained", object{"left": 0, "leases": 0})
	check(witness.connection.Close())
}

// connect logs in. A worker may start while etcd does not log in.
func connect() *clientv3.Client {
	user := strings.SplitN(os.Getenv("ETCD_LOCKED_USER"), ":", 2)
	for start := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints:            strings.Split(os.Getenv("ETCD_LOCKED_ENDPOINTS"), ","),
			DialTimeout:          5 * time.Second,
			DialKeepAliveTime:    5 * time.Second,
			DialKeepAliveTimeout: 2 * time.Second,
			Username:             user[0],
			Password:             user[1],
		})
		if err == nil {
			return client
		}
		if time.Since(start) > patience {
			check(err)
		}
	}
}

// caller is one task with its session.
type caller struct {
	client  *clientv3.Client
	session *concurrency.Session
	ttl     int
	random  *rand.Rand
}

func (c *caller) roam() {
	switch n := c.random.Intn(10); {
	case n < 6:
		c.exclusive("exclusive", fmt.Sprintf("hot/%d", c.random.Intn(hot)), wait, c.between(2, 60))
	case n < 9:
		c.exclusive("cold", fmt.Sprintf("cold/%d", c.random.Intn(cold)), wait, c.between(2, 60))
	default:
		c.exclusive("long", fmt.Sprintf("long/%d", c.random.Intn(long)), forever, c.between(3000, 12000))
	}
}

// exclusive makes one call that waits for so long, as the package's documentation shows it.
func (c *caller) exclusive(kind, name string, wait, lasts time.Duration) {
	call := atomic.AddUint64(&witness.calls, 1)
	n, _ := strconv.Atoi(name[strings.LastIndex(name, "/")+1:])
	ttl := 10
	if n%2 == 0 {
		ttl = 2
	}
	asked := object{
		"kind": kind, "names": []string{name}, "mode": "exclusive", "wait": nil, "ttl": ttl * 1000, "min_hold": 0,
	}
	if wait > 0 {
		asked["wait"] = wait.Milliseconds()
	}
	say(now(), "asked", object{"call": call, "asked": asked})
	returned := func(result interface{}) {
		say(now(), "returned", object{"call": call, "result": result})
	}
	ctx, cancel := patient(wait)
	defer cancel()
	if err := c.renew(ctx, ttl); err != nil {
		returned(failed(ctx, err))
		c.close()
		return
	}
	mutex := concurrency.NewMutex(c.session, "locks/"+name)
	if err := mutex.Lock(ctx); err != nil {
		returned(failed(ctx, err))
		c.close()
		return
	}
	if !c.body(call, name, mutex.Header().Revision<<16, lasts) {
		returned(object{"lost": c.cause()})
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := mutex.Unlock(ctx); err != nil {
		returned(object{"refused": err.Error()})
		c.close()
		return
	}
	returned("done")
}

// patient makes the context of a call: with a bound if it has one, else until the worker is to end.
func patient(wait time.Duration) (context.Context, context.CancelFunc) {
	if wait > 0 {
		return context.WithTimeout(context.Background(), wait)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// cause asks etcd why the session has ended: it has revoked the lease, or it has not been reached in time.
func (c *caller) cause() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if lease, err := c.client.TimeToLive(ctx, c.session.Lease()); err == nil && lease.TTL <= 0 {
		return "Gone"
	}
	return "Expired"
}

// body works under the lock; false if the session ended before.
func (c *caller) body(call uint64, name string, token int64, lasts time.Duration) bool {
	at := now()
	if !c.held() {
		return false
	}
	await(call, at, "begun", object{"call": call, "held": true, "tokens": [][]interface{}{{name, token}}})
	at, held := now(), c.held()
	if held {
		await(call, at, "write", object{"call": call, "name": name, "token": token, "held": true})
	}
	for end := time.Now().Add(lasts); time.Now().Before(end) && !drains(); time.Sleep(poll) {
		if at, held = now(), c.held(); !held {
			break
		}
		say(at, "polled", object{"call": call, "held": true})
	}
	at, held = now(), c.held()
	if !held {
		say(at, "ended", object{"call": call, "held": false, "how": "dropped"})
		return false
	}
	say(at, "ended", object{"call": call, "held": true, "how": "done"})
	return true
}

// held tells what the session knows. The clock is to be read before.
func (c *caller) held() bool {
	select {
	case <-c.session.Done():
		return false
	default:
		return true
	}
}

// renew makes a session, if there is none of this TTL that lives.
func (c *caller) renew(ctx context.Context, ttl int) error {
	if c.session != nil && c.ttl == ttl && c.held() {
		return nil
	}
	c.close()
	lease, err := c.client.Grant(ctx, int64(ttl))
	if err != nil {
		return err
	}
	session, err := concurrency.NewSession(c.client, concurrency.WithLease(lease.ID))
	c.session, c.ttl = session, ttl
	return err
}

func (c *caller) close() {
	if c.session != nil {
		go c.session.Close()
	}
	c.session = nil
}

func (c *caller) between(least, most int) time.Duration {
	return time.Duration(least+c.random.Intn(most-least+1)) * time.Millisecond
}

func failed(ctx context.Context, err error) interface{} {
	switch ctx.Err() {
	case context.DeadlineExceeded:
		return "busy"
	case context.Canceled:
		return "dropped" // at the end of the run
	}
	return object{"refused": err.Error()}
}

func drains() bool {
	select {
	case <-draining:
		return true
	default:
		return false
	}
}

// say sends one line. The process ends with the witness.
func say(at uint64, what string, said object) {
	text, err := json.Marshal(object{"at": at, what: said})
	check(err)
	witness.Lock()
	defer witness.Unlock()
	if _, err := witness.connection.Write(append(text, '\n')); err != nil {
		os.Exit(1)
	}
}

// await sends one line, and waits until the witness knows.
func await(call, at uint64, what string, said object) {
	known := make(chan struct{})
	witness.Lock()
	witness.awaited[call] = known
	witness.Unlock()
	say(at, what, said)
	<-known
}

func acknowledge() {
	lines := bufio.NewScanner(witness.connection)
	for lines.Scan() {
		call, _ := strconv.ParseUint(lines.Text(), 10, 64)
		witness.Lock()
		if known := witness.awaited[call]; known != nil {
			close(known)
			delete(witness.awaited, call)
		}
		witness.Unlock()
	}
}

// now reads CLOCK_BOOTTIME, which all processes share, in nanoseconds.
func now() uint64 {
	const bootTime = 7
	var time syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&time)), 0)
	return uint64(time.Nano())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go worker:", err)
		os.Exit(1)
	}
}
