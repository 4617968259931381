// A converter with five licences, each taken for 18 ms in which nothing is computed; the five places are the limit: licences PORT.
package main

import (
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	// A place is taken by sending, and given back by receiving.
	licences := make(chan struct{}, 5)
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		licences <- struct{}{}
		time.Sleep(18 * time.Millisecond)
		<-licences
		io.WriteString(w, "converted\n")
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
