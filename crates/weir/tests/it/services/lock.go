// A service whose requests hold a mutex one after the other: go run lock.go PORT.
package main

import (
	"net/http"
	"os"
	"sync"
	"time"
)

func main() {
	var lock sync.Mutex
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		time.Sleep(5 * time.Millisecond)
		lock.Unlock()
		answer.Write([]byte("hello"))
	})
	http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
