// Contender in Go, with etcd's own package clientv3/concurrency. See ../main.rs.
//
//	ETCDCTL_ENDPOINTS=http://127.0.0.1:2379 contender counter 40
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	file := os.Args[1]
	rounds, err := strconv.Atoi(os.Args[2])
	check(err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(os.Getenv("ETCDCTL_ENDPOINTS"), ","),
		DialTimeout: 10 * time.Second,
	})
	check(err)
	defer client.Close()

	// The session has a lease and renews it. One session is one owner: goroutines that exclude each other need one each.
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	check(err)
	defer session.Close()

	mutex := concurrency.NewMutex(session, "locks/counter")
	for round := 0; round < rounds; round++ {
		check(mutex.Lock(context.Background()))
		n := count(file)
		select {
		case <-session.Done():
			// The lock is lost. The package does not stop the work, so the work has to check; its writes are done by now.
			check(fmt.Errorf("the session is over"))
		default:
		}
		fmt.Println(n, "go", mutex.Header().Revision, mutex.Key())
		check(mutex.Unlock(context.Background()))
	}
}

// Reads, waits, writes: correct only if no other contender does so in between.
func count(file string) int {
	text, err := os.ReadFile(file)
	check(err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(err)
	time.Sleep(5 * time.Millisecond)
	check(os.WriteFile(file, []byte(fmt.Sprintln(n+1)), 0o644))
	return n + 1
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go contender:", err)
		os.Exit(1)
	}
}
