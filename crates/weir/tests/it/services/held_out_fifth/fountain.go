// A fountain whose pipe carries 10 MB a second in all: answers of 48 kB are sent in cups of 4 kB, each when the shared pipe has it (an egress limit); the bandwidth is the limit: fountain PORT.
package main

import (
	"bytes"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	cup    = 4000
	cups   = 12
	second = 10_000_000 // bytes
)

// pipe lets every 2 ms five cups through, to whoever has waited longest.
func pipe(tap chan<- struct{}) {
	next := time.Now()
	for {
		next = next.Add(5 * cup * time.Second / second)
		time.Sleep(time.Until(next))
		if time.Since(next) > 50*time.Millisecond {
			next = time.Now()
		}
	pour:
		for range 5 {
			select {
			case tap <- struct{}{}:
			default:
				// The basin is full; what nobody takes is lost.
				break pour
			}
		}
	}
}

func main() {
	tap := make(chan struct{}, 5)
	go pipe(tap)
	water := bytes.Repeat([]byte("drip drop\n"), cup/10)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(cup*cups))
		out := http.NewResponseController(w)
		// The head goes out at once.
		out.Flush()
		for range cups {
			<-tap
			if _, err := w.Write(water); err != nil {
				return
			}
			out.Flush()
		}
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
