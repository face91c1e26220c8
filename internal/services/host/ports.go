package host

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"sync"
)

// Ports below those that the kernel hands out for outgoing connections, so that nothing takes one by chance
// between our looking and a server's binding it.
const firstPort, lastPort = 20000, 32000

var reserved struct {
	sync.Mutex
	locks map[int]*Lock
}

// Port returns a port that is free on 127.0.0.1 and reserves it, among processes that ask through this function
// with the same cache, until ReleasePort or the end of this process. So a server can be stopped and started
// again on its port.
func Port(cache string) (int, error) {
	dir := filepath.Join(cache, "ports")
	if err := OpenDir(dir); err != nil {
		return 0, err
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		lock, err := tryAcquire(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if !bindable(port) {
			lock.Remove()
			continue
		}
		if !keep(port, lock) { // reserved by this process with another cache
			lock.Remove()
			continue
		}
		return port, nil
	}
	return 0, fmt.Errorf("find a free port on 127.0.0.1 between %d and %d: none after 1000 tries", firstPort, lastPort)
}

// ReleasePort gives ports back.
func ReleasePort(ports ...int) {
	reserved.Lock()
	defer reserved.Unlock()
	for _, port := range ports {
		if lock := reserved.locks[port]; lock != nil {
			lock.Remove()
			delete(reserved.locks, port)
		}
	}
}

func keep(port int, lock *Lock) bool {
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.locks[port] != nil {
		return false
	}
	if reserved.locks == nil {
		reserved.locks = make(map[int]*Lock)
	}
	reserved.locks[port] = lock
	return true
}

func bindable(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
