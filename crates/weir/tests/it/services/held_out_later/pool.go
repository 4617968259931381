// Requests that share four places, each for 12 ms: pool PORT.
package main

import (
	"net/http"
	"os"
	"time"
)

func main() {
	places := make(chan struct{}, 4)
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		places <- struct{}{}
		time.Sleep(12 * time.Millisecond)
		<-places
		answer.Write([]byte("hello"))
	})
	http.ListenAndServe("127.0.0.1:"+os.Args[1], nil)
}
