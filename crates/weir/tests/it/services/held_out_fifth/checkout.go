// A checkout that asks a bank (its child process) for 22 ms over HTTP, with at most four connections to it (MaxConnsPerHost); the pool is the limit: checkout PORT.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// bank takes as many customers at once as come; each takes 22 ms. It ends with its parent.
func bank() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(22 * time.Millisecond)
		io.WriteString(w, "paid\n")
	})))
}

func main() {
	if os.Args[1] == "bank" {
		bank()
	}
	child := exec.Command("/proc/self/exe", "bank")
	life, _ := child.StdinPipe()
	output, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		panic(err)
	}
	defer life.Close()
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		panic(err)
	}
	url := "http://" + strings.TrimSpace(address) + "/pay"
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 4, MaxIdleConnsPerHost: 4}}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer, err := client.Get(url)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		receipt, _ := io.ReadAll(answer.Body)
		w.Write(receipt)
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], nil))
}
