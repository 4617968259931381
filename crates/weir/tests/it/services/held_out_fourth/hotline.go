// A hotline with two seats of 25 ms a call; who finds both taken gets 429 at once; these fast failures are the limit: hotline PORT.
package main

import (
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	var calls atomic.Int32
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		// Nobody waits for a seat.
		defer calls.Add(-1)
		if calls.Add(1) > 2 {
			http.Error(w, "all lines are busy", http.StatusTooManyRequests)
			return
		}
		time.Sleep(25 * time.Millisecond)
		io.WriteString(w, "how can I help?\n")
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
