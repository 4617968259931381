// A service that asks another process over HTTP for each request, on as many connections as it likes; the other one takes 55 ms, and is the limit: waiter PORT.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// The other process: says on which port it listens, and ends when the first one has ended.
func kitchen() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(55 * time.Millisecond)
		io.WriteString(w, "soup\n")
	}))
}

func startKitchen() (address string) {
	command := exec.Command(os.Args[0], "kitchen")
	if _, err := command.StdinPipe(); err != nil {
		panic(err)
	}
	said, err := command.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := command.Start(); err != nil {
		panic(err)
	}
	if _, err := fmt.Fscanln(said, &address); err != nil {
		panic(err)
	}
	return address
}

func main() {
	if os.Args[1] == "kitchen" {
		kitchen()
		return
	}
	address := startKitchen()
	// All connections to the other one are kept for the next request, and their number has no limit.
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer, err := client.Get("http://" + address + "/dish")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		dish, _ := io.ReadAll(answer.Body)
		w.Write(dish)
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
